package rewrite

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func TestNoGroupOfTheServerItselfIsSkipped(t *testing.T) {
	local, remote := schema.GroupVersion{Group: "apps", Version: "v1"}, schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	failed := func(groups ...schema.GroupVersion) error {
		err := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{}}
		for _, gv := range groups {
			err.Groups[gv] = errors.New("connection refused")
		}
		return err
	}
	for rule, test := range map[string]struct {
		err     error
		refused bool
	}{
		"no error":               {nil, false},
		"an extension server":    {failed(remote), false},
		"the server itself":      {failed(local), true},
		"both":                   {failed(remote, local), true},
		"another kind of errors": {errors.New("unauthorized"), true},
	} {
		if err := own(test.err, []schema.GroupVersion{remote}); (err != nil) != test.refused {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
