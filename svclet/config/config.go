package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/component-base/featuregate"
)

// DropInVariable is the environment variable that names the directory of
// drop-ins where --config-dir does not (document 3 section 2, alpha).
const DropInVariable = "SVCLET_CONFIG_DROPIN_DIR_ALPHA"

// Settings are all that is set.
type Settings struct {
	Flags
	Configuration *Configuration
	// FeatureGates are those of the document; Gates are those of them on which
	// parts of the agent act.
	FeatureGates featuregate.FeatureGate
	Gates        Gates
	// Warnings are what is deprecated or has no effect, one line each.
	Warnings []string

	table   []Setting
	given   map[string]bool   // flags that the command line has
	origins map[string]string // fields that files set
}

// Problems are all that is wrong with settings, one line each.
type Problems []string

// Error implements error.
func (p Problems) Error() string { return strings.Join(p, "\n") }

func (p *Problems) add(format string, args ...any) {
	*p = append(*p, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// Load makes the settings of a command line and of the files that it names. The
// error is of type [Problems]. If --help or --version ask for an answer, files
// are not read and nothing is checked.
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
		// Of half of the settings it cannot be said whether they go together.
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

// override lets the command line override what files set, and completes both.
// Feature gates that it does not name stay as they are.
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
	// A server that nobody has asked for gives way to --runonce.
	if c := s.Configuration; c.RunOnce && !s.Explicit("enableServer") {
		*c.EnableServer = false
	}
	// Any negative number of processes stands for no bound of a pod's own.
	*s.Configuration.PodPidsLimit = max(*s.Configuration.PodPidsLimit, -1)
}

// set says whether a file sets a field.
func (s *Settings) set(field string) bool { return s.origins[field] != "" }

// Explicit says whether a field is set by a flag or by a file, be it to its
// default.
func (s *Settings) Explicit(field string) bool {
	of := ofField(s.table, field)
	return s.set(field) || of != nil && s.given[of.Flag]
}

// RateLimit is the limit of requests to the API server that was asked for, by
// flag or file; ok is false if none was.
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

// Shown is a configuration as others may see it: without what of --manifest-url
// and its headers may be secret.
func Shown(c *Configuration) *Configuration {
	c = c.DeepCopy()
	if at, err := url.Parse(c.StaticPodURL); err != nil {
		c.StaticPodURL = "<masked>"
	} else {
		// As the source of pods shows it in its logs.
		c.StaticPodURL = (&url.URL{Scheme: at.Scheme, Host: at.Host, Path: at.Path}).String()
	}
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return c
}
