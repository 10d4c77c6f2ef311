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
		"none":                  {Options{}, Others{}, ""},
		"both":                  {Options{"a/b", "c", "a/d"}, domain, ""},
		"standalone":            {serving, Others{}, "--serving-secret: has no effect without --group-domain"},
		"no namespace":          {Options{"b", "c", ""}, domain, `--serving-secret: invalid name of a Secret "b": must be NAMESPACE/NAME`},
		"two slashes":           {Options{"", "", "a/b/c"}, domain, "--etcd-secret: invalid name"},
		"no service":            {Options{ServingSecret: "a/b"}, domain, "set both or none"},
		"no secret":             {Options{ServingService: "c"}, domain, "set both or none"},
		"service's name":        {Options{"a/b", "c.d", ""}, domain, "--serving-service: invalid name of a Service"},
		"serving files":         {serving, Others{GroupDomain: "svc.dev", ServingFiles: true}, "excludes --tls-cert-file"},
		"files of etcd":         {Options{EtcdSecret: "a/b"}, Others{GroupDomain: "svc.dev", EtcdFiles: true}, "excludes --etcd-cafile"},
		"etcd without TLS":      {Options{EtcdSecret: "a/b"}, Others{GroupDomain: "svc.dev", EtcdServers: []string{"http://etcd:2379"}}, "must be an https URL"},
		"one secret for both":   {Options{"a/b", "c", "a/b"}, domain, "must not be --serving-secret"},
		"etcd alone, no domain": {Options{EtcdSecret: "a/b"}, Others{}, "--etcd-secret: has no effect"},
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
