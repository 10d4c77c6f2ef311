package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"
)

// DropInVariable is the environment variable with the drop-in directory, used
// without --config-dir (document 3 section 2, alpha).
const DropInVariable = "SVCLET_CONFIG_DROPIN_DIR_ALPHA"

// Settings are all settings of an agent.
type Settings struct {
	Flags
	Configuration *Configuration
	// FeatureGates are those of the document; Gates are those that have an effect.
	FeatureGates featuregate.FeatureGate
	Gates        Gates
	// Warnings are deprecated settings and settings without effect, one line each.
	Warnings []string

	table   []Setting
	given   map[string]bool   // flags on the command line
	origins map[string]string // fields set by files
}

// Problems are all errors in settings, one line each.
type Problems []string

// Error implements error.
func (p Problems) Error() string { return strings.Join(p, "\n") }

func (p *Problems) add(format string, args ...any) {
	*p = append(*p, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// Load returns the settings of a command line and of the files that it names. The
// error is of type [Problems]. With --help or --version files are not read and
// nothing is checked.
func Load(args []string, getenv func(string) string) (*Settings, error) {
	s := &Settings{Flags: DefaultFlags(), Configuration: Default(), table: All()}
	line := parse(args, s.table, &s.Flags, s.Configuration)
	s.given = line.given
	if asked := s.Help || s.Version == "true" || s.Version == "raw"; asked && len(line.problems) == 0 {
		return s, nil
	}
	named := "--config-dir"
	if !s.given["config-dir"] {
		named, s.ConfigDir = DropInVariable, getenv(DropInVariable)
	}
	files := readFiles(s.Config, s.ConfigDir, named)
	s.origins = files.origins
	whole := len(files.problems) == 0
	if whole {
		s.Configuration = Default()
		files.apply(s.Configuration)
		s.follow()
		s.override(args)
	}
	problems := slices.Concat(line.problems, files.problems, s.check())
	if whole {
		// Incomplete settings cannot be checked for contradictions.
		problems = append(problems, s.contradictions()...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	s.warn()
	return s, nil
}

// follow sets the defaults that depend on other fields of files (kubelet's).
func (s *Settings) follow() {
	c := s.Configuration
	if s.set("nodeStatusUpdateFrequency") && !s.set("nodeStatusReportFrequency") {
		c.NodeStatusReportFrequency = c.NodeStatusUpdateFrequency
	}
	if !s.set("serializeImagePulls") && c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls > 1 {
		*c.SerializeImagePulls = false
	}
}

// override applies the command line over the files, and completes both. Feature
// gates that it does not name are unchanged.
func (s *Settings) override(args []string) {
	gates := s.Configuration.FeatureGates
	flags := DefaultFlags()
	parse(args, s.table, &flags, s.Configuration)
	for name, on := range gates {
		if _, named := s.Configuration.FeatureGates[name]; !named {
			s.Configuration.FeatureGates[name] = on
		}
	}
	for _, directory := range []*string{&s.RootDir, &s.CertDir} {
		if absolute, err := filepath.Abs(*directory); err == nil && *directory != "" {
			*directory = absolute
		}
	}
	// --runonce disables the server unless it was enabled explicitly.
	if c := s.Configuration; c.RunOnce && !s.Explicit("enableServer") {
		*c.EnableServer = false
	}
	mergeEviction(s.Configuration)
}

// set reports whether a file sets a field.
func (s *Settings) set(field string) bool { return s.origins[field] != "" }

// Explicit reports whether a flag or a file sets a field, even if to its default.
func (s *Settings) Explicit(field string) bool {
	of := ofField(s.table, field)
	return s.set(field) || of != nil && s.given[of.Flag]
}

// RateLimit returns the configured rate limit of requests to the API server; ok is
// false if there is none.
func (s *Settings) RateLimit() (qps float32, burst int, ok bool) {
	if !s.Explicit("kubeAPIQPS") && !s.Explicit("kubeAPIBurst") {
		return 0, 0, false
	}
	qps, burst = 50, 100
	if n := s.Configuration.KubeAPIQPS; n != nil && *n > 0 {
		qps = float32(*n)
	}
	if n := s.Configuration.KubeAPIBurst; n > 0 {
		burst = int(n)
	}
	return qps, burst, true
}

// Shown returns a copy of a configuration without the secret parts of
// --manifest-url and its headers.
func Shown(c *Configuration) *Configuration {
	c = c.DeepCopy()
	if at, err := url.Parse(c.StaticPodURL); err != nil {
		c.StaticPodURL = "<masked>"
	} else {
		// The same form as in the logs of package source.
		c.StaticPodURL = (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}).String()
	}
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return c
}
