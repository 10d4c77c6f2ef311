package hostcerts

import (
	"errors"
	"strings"
	"testing"
)

func TestValidateOptions(t *testing.T) {
	domain := Others{GroupDomain: "svc.dev", EtcdServers: []string{"https://etcd:2379"}}
	serving := Options{ServingSecret: "a/b", ServingService: "c"}
	for name, test := range map[string]struct {
		options Options
		others  Others
		want    string // part of the only error; empty for none
	}{
		"without options nothing is kept":           {Options{}, Others{}, ""},
		"both Secrets may be kept":                  {Options{"a/b", "c", "a/d"}, domain, ""},
		"a standalone server has no serving Secret": {serving, Others{}, "--serving-secret: has no effect without --group-domain"},
		"a serving Secret's name has a namespace":   {Options{"b", "c", ""}, domain, `--serving-secret: invalid name of a Secret "b": must be NAMESPACE/NAME`},
		"an etcd Secret's name has one slash":       {Options{"", "", "a/b/c"}, domain, "--etcd-secret: invalid name"},
		"a serving Secret needs a Service":          {Options{ServingSecret: "a/b"}, domain, "set both or none"},
		"a Service needs a serving Secret":          {Options{ServingService: "c"}, domain, "set both or none"},
		"a Service's name is a DNS label":           {Options{"a/b", "c.d", ""}, domain, "--serving-service: invalid name of a Service"},
		"a serving Secret excludes files":           {serving, Others{GroupDomain: "svc.dev", ServingFiles: true}, "excludes --tls-cert-file"},
		"an etcd Secret excludes files":             {Options{EtcdSecret: "a/b"}, Others{GroupDomain: "svc.dev", EtcdFiles: true}, "excludes --etcd-cafile"},
		"an etcd Secret needs TLS":                  {Options{EtcdSecret: "a/b"}, Others{GroupDomain: "svc.dev", EtcdServers: []string{"http://etcd:2379"}}, "must be an https URL"},
		"the two Secrets differ":                    {Options{"a/b", "c", "a/b"}, domain, "must not be --serving-secret"},
		"a standalone server has no etcd Secret":    {Options{EtcdSecret: "a/b"}, Others{}, "--etcd-secret: has no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := test.options.Validate(test.others)
			if test.want == "" {
				if len(errs) > 0 {
					t.Error(errors.Join(errs...))
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), test.want) {
				t.Errorf("errors %q, want one with %q", errs, test.want)
			}
		})
	}
}
