package scheduler

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	resourcev1 "k8s.io/api/resource/v1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
)

func TestDeviceTaintRulesOfReleasesBefore137AreWatchedWithTheirGate(t *testing.T) {
	served := func(obj client.Object) (bool, error) {
		_, newest := obj.(*resourcev1.DeviceTaintRule)
		return !newest, nil
	}
	for _, on := range []bool{false, true} {
		watched, err := servedKinds(served, func(string) (bool, bool) { return on, on })
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(watched, func(k kind) bool {
			_, ok := k.object.(*resourcev1beta2.DeviceTaintRule)
			return ok
		})
		if got != on || len(watched) < len(kinds()) {
			t.Errorf("gate %v: rules are watched: %v, with %d kinds", on, got, len(watched))
		}
	}
}

func TestAGateWithoutItsKindsIsLogged(t *testing.T) {
	for _, test := range []struct {
		on, served bool
		want       string // a part of the log, which svc up shows only if it is an error
	}{
		{true, false, "--runtime-config=scheduling.k8s.io/v1beta1=true"},
		{true, true, ""},
		{false, false, ""},
	} {
		var log strings.Builder
		ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{}))
		got, err := groupsServed(ctx, &controller.Env{
			Gate:   func(string) (on, set bool) { return test.on, true },
			Served: func(client.Object) (bool, error) { return test.served, nil },
		})
		if err != nil || got != (test.on && test.served) {
			t.Errorf("gate %v, served %v: got %v, %v", test.on, test.served, got, err)
		}
		if (log.Len() > 0) != (test.want != "") || !strings.Contains(log.String(), test.want) || test.want != "" && !strings.Contains(log.String(), `"error"`) {
			t.Errorf("gate %v, served %v: logged %q, want %q", test.on, test.served, log.String(), test.want)
		}
	}
}
