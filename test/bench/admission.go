package main

import (
	"context"
	"strings"

	"svc.dev/svc/apiserver/admission/plugins"
)

// withoutAdmission is a system whose API server runs without the admission plugins that are
// on by default.
type withoutAdmission struct{ system }

// serversWithoutAdmission returns the systems of apiServers without admission.
func serversWithoutAdmission(o options) ([]system, error) {
	systems, err := apiServers(o)
	for i := range systems {
		systems[i] = withoutAdmission{systems[i]}
	}
	return systems, err
}

// Processes implements system. Plugins that only kube-apiserver has stay on in it: none of
// them concerns the creation of the measured objects.
func (w withoutAdmission) Processes(dir string) ([]process, error) {
	const flag = "--disable-admission-plugins="
	var names []string
	for _, p := range plugins.All(plugins.Settings{}) {
		if p.On {
			names = append(names, p.Name)
		}
	}
	processes, err := w.system.Processes(dir)
	for _, p := range processes {
		for i, arg := range p.args {
			if strings.HasPrefix(arg, flag) {
				p.args[i] = flag + strings.Join(names, ",")
			}
		}
	}
	return processes, err
}

// measureWithoutAdmission creates objects as measureConfigMaps and measurePods do: the
// difference is what admission costs.
func measureWithoutAdmission(ctx context.Context, t *trial) error {
	for _, k := range []kind{configMapKind(), podKind()} {
		create := verbs(k, verbNamespace)[0]
		create.name += " with admission off"
		if err := t.measureVerbs(ctx, k, []verb{create}); err != nil {
			return err
		}
	}
	return nil
}
