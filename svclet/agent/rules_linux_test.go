package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/config"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/nft"
)

func TestAnAgentWithoutProxyAndPoliciesRemovesTheRulesOfOneThatHadThem(t *testing.T) {
	checkRemoved(t, func(ctx context.Context) []func(context.Context) {
		_, policies := networkPolicies(ctx, common{}, connections{})
		return append(newServices(ctx, common{}, connections{}).tasks.before, policies.before...)
	}, "others")
}

func TestAnAgentThatCannotEnforcePoliciesRemovesTheRulesOfOneThatCould(t *testing.T) {
	checkRemoved(t, func(ctx context.Context) []func(context.Context) {
		t.Setenv("PATH", "") // without nft
		recorder := events.New(ctx, nil, apiruntime.NewScheme(), "here", 0, 0)
		defer recorder.Stop()
		enforcer, policies := networkPolicies(ctx, common{Config: Config{Flags: config.Flags{NetworkPolicy: true}}}, connections{clients: &apiclient.Clients{}, events: recorder})
		if enforcer != nil {
			t.Error("policies are enforced")
		}
		return policies.before
	}, "svclet", "others")
}

func TestAnAgentThatCannotHaveAProxyRemovesTheRulesOfOneThatHadIt(t *testing.T) {
	checkRemoved(t, func(ctx context.Context) []func(context.Context) {
		t.Setenv("PATH", "") // without nft; an old kernel is refused at the same place
		recorder := events.New(ctx, nil, apiruntime.NewScheme(), "here", 0, 0)
		defer recorder.Stop()
		n := newServices(ctx, common{Config: Config{Flags: config.Flags{ServiceProxy: true}, API: &rest.Config{}}}, connections{clients: &apiclient.Clients{}, events: recorder})
		if len(n.lacks()) != 1 {
			t.Error("services have a proxy")
		}
		return n.tasks.before
	}, "svclet-policies", "svclet-policies", "others")
}

// checkRemoved checks which tables are left in a network namespace after the first steps of an agent.
func checkRemoved(t *testing.T, steps func(context.Context) []func(context.Context), want ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	ctx := klog.NewContext(t.Context(), klog.FromContext(t.Context()))
	result := make(chan error)
	var left []string
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			for _, table := range []string{"ip svclet", "ip svclet-policies", "ip6 svclet-policies", "ip others"} {
				if out, err := exec.CommandContext(ctx, "nft", "add table "+table+"; add chain "+table+" forward { type filter hook forward priority 0; policy drop; }").CombinedOutput(); err != nil {
					return errors.New(string(out))
				}
			}
			for _, step := range steps(ctx) {
				step(ctx)
			}
			var err error
			left, err = nft.Names()
			return err
		}()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(left, want) {
		t.Errorf("tables %v are left", left)
	}
}
