// Package configfile reads the scheduler's configuration file, a
// KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1.
package configfile

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/controllers/scheduler/decision"
	"svc.dev/svc/controllers/scheduler/extender"
	"svc.dev/svc/controllers/scheduler/queue"
	"svc.dev/svc/internal/configlines"
)

// Config is what a file configures.
type Config struct {
	Profiles []*decision.Profile
	// Extenders are in the order in which they are asked.
	Extenders                  []*extender.Extender
	InitialBackoff, MaxBackoff time.Duration
}

// Default returns the configuration without a file: one profile.
func Default(schedulerName string) *Config {
	return &Config{
		Profiles:       []*decision.Profile{decision.DefaultProfile(schedulerName)},
		InitialBackoff: queue.InitialBackoff, MaxBackoff: queue.MaxBackoff,
	}
}

// Disable leaves out a filter in all profiles.
func (c *Config) Disable(filter string) {
	for _, p := range c.Profiles {
		p.Disabled = sets.New(filter).Union(p.Disabled)
	}
}

// Read reads a file. The errors name the file, the line and the field.
func Read(name string) (*Config, []error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, []error{fmt.Errorf("%w; name a file with a KubeSchedulerConfiguration", err)}
	}
	config, errs := parse(data)
	for i := range errs {
		errs[i] = fmt.Errorf("%s%w", name, errs[i])
	}
	return config, errs
}

// parse returns a configuration, or errors that begin with ":", the line and ": ".
func parse(data []byte) (*Config, []error) {
	file, err := configlines.Parse(data)
	if err != nil {
		return nil, []error{fmt.Errorf(": %w", err)}
	}
	decoded, err := decode(data)
	if err != nil {
		return nil, decoding(file, err)
	}
	p := &parser{}
	config := p.config(decoded)
	if len(p.errs) > 0 {
		return nil, fields(file, p.errs)
	}
	return config, nil
}

// decode decodes a file. Unknown and duplicate fields are errors.
func decode(data []byte) (*configv1.KubeSchedulerConfiguration, error) {
	scheme := runtime.NewScheme()
	if err := configv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(configv1.SchemeGroupVersion)
	object, kind, err := decoder.Decode(data, nil, nil)
	switch {
	case runtime.IsMissingKind(err), runtime.IsMissingVersion(err), runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("must have apiVersion: %s and kind: KubeSchedulerConfiguration (%w)", configv1.SchemeGroupVersion, err)
	case err != nil:
		return nil, err
	}
	config, ok := object.(*configv1.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("kind is %s: must be KubeSchedulerConfiguration", kind.Kind)
	}
	return config, nil
}

// parser collects the errors of a file.
type parser struct {
	errs field.ErrorList
}

func (p *parser) invalid(path *field.Path, value any, format string, args ...any) {
	p.errs = append(p.errs, field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

// unsupported records a field that has no effect here.
func (p *parser) unsupported(path *field.Path, format string, args ...any) {
	p.errs = append(p.errs, field.Forbidden(path, "unsupported: "+fmt.Sprintf(format, args...)))
}

// within records an error if a value is outside a range.
func (p *parser) within(path *field.Path, value, least, most int64) {
	if value < least || value > most {
		p.invalid(path, value, "must be from %d to %d", least, most)
	}
}

// config checks a file. parallelism and the fields of debugging have no effect: one
// goroutine decides, and the manager has its own endpoints.
func (p *parser) config(c *configv1.KubeSchedulerConfiguration) *Config {
	if !reflect.ValueOf(c.LeaderElection).IsZero() {
		p.unsupported(field.NewPath("leaderElection"), "the flags --leader-elect... of the controller manager configure it: remove this field")
	}
	if !reflect.ValueOf(c.ClientConnection).IsZero() {
		p.unsupported(field.NewPath("clientConnection"), "the scheduler has the connection of the controller manager: remove this field")
	}
	config := &Config{
		InitialBackoff: p.seconds("podInitialBackoffSeconds", c.PodInitialBackoffSeconds, queue.InitialBackoff),
		MaxBackoff:     p.seconds("podMaxBackoffSeconds", c.PodMaxBackoffSeconds, queue.MaxBackoff),
	}
	if config.MaxBackoff < config.InitialBackoff {
		p.invalid(field.NewPath("podMaxBackoffSeconds"), int64(config.MaxBackoff/time.Second), "must not be less than podInitialBackoffSeconds, %d", config.InitialBackoff/time.Second)
	}
	profiles := c.Profiles
	if len(profiles) == 0 {
		profiles = []configv1.KubeSchedulerProfile{{}}
	}
	names := map[string]bool{}
	for i := range profiles {
		path := field.NewPath("profiles").Index(i)
		profile := p.profile(path, &profiles[i], ptr.Deref(c.PercentageOfNodesToScore, 0), len(profiles) == 1)
		if names[profile.SchedulerName] {
			p.errs = append(p.errs, field.Duplicate(path.Child("schedulerName"), profile.SchedulerName))
		}
		names[profile.SchedulerName] = true
		config.Profiles = append(config.Profiles, profile)
	}
	if c.PercentageOfNodesToScore != nil {
		p.within(field.NewPath("percentageOfNodesToScore"), int64(*c.PercentageOfNodesToScore), 0, 100)
	}
	config.Extenders = p.extenders(c.Extenders, config.Profiles)
	return config
}

func (p *parser) seconds(name string, value *int64, otherwise time.Duration) time.Duration {
	if value == nil {
		return otherwise
	}
	p.within(field.NewPath(name), *value, 1, int64(24*time.Hour/time.Second))
	return time.Duration(*value) * time.Second
}

// defaultName is the scheduler of pods that name none.
const defaultName = "default-scheduler"

// profile returns a profile. Only a single one may have no name.
func (p *parser) profile(path *field.Path, c *configv1.KubeSchedulerProfile, percentage int32, single bool) *decision.Profile {
	name := ptr.Deref(c.SchedulerName, "")
	switch {
	case name == "" && !single:
		p.errs = append(p.errs, field.Required(path.Child("schedulerName"), "each of several profiles must have one"))
	case name == "" && c.SchedulerName != nil:
		p.errs = append(p.errs, field.Required(path.Child("schedulerName"), "must not be empty"))
	case name == "":
		name = defaultName
	}
	profile := decision.DefaultProfile(name)
	if c.PercentageOfNodesToScore != nil {
		percentage = *c.PercentageOfNodesToScore
		p.within(path.Child("percentageOfNodesToScore"), int64(percentage), 0, 100)
	}
	profile.PercentageOfNodes = int(percentage)
	if c.Plugins != nil {
		p.plugins(path.Child("plugins"), c.Plugins, profile)
	}
	configured := map[string]bool{}
	for i := range c.PluginConfig {
		at := path.Child("pluginConfig").Index(i)
		plugin := c.PluginConfig[i].Name
		if configured[plugin] {
			p.errs = append(p.errs, field.Duplicate(at.Child("name"), plugin))
		}
		configured[plugin] = true
		p.arguments(at, &c.PluginConfig[i], profile)
	}
	return profile
}

// cutUnknown returns the path in the message of a strict decoder, as in
// `unknown field "profiles[0].plugin"`.
func cutUnknown(message string) (path string, ok bool) {
	_, rest, found := strings.Cut(message, ` field "`)
	path, _, ok = strings.Cut(rest, `"`)
	return path, found && ok
}
