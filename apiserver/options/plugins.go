package options

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// absentPlugins are plugins of Kubernetes that svc does not have: those of releases
// after 1.28.
var absentPlugins = []string{
	"JobValidation", "PodGroupWorkloadExists",
}

// disabledPlugins is the value of --disable-admission-plugins. It accepts absent plugins and ignores them.
type disabledPlugins struct{ pflag.Value }

// Set implements pflag.Value.
func (d disabledPlugins) Set(names string) error {
	present := slices.DeleteFunc(strings.Split(names, ","), func(name string) bool { return slices.Contains(absentPlugins, name) })
	return d.Value.Set(strings.Join(present, ","))
}

// addAdmissionFlags adds the library's flags and makes
// --disable-admission-plugins take the names of absent plugins too.
func (o *Options) addAdmissionFlags(fs *pflag.FlagSet) {
	o.Admission.AddFlags(fs)
	disable := fs.Lookup("disable-admission-plugins")
	disable.Value = disabledPlugins{disable.Value}
	disable.Usage += " Plugins of later releases, such as JobValidation, may be named, too: svc does not have them."
}
