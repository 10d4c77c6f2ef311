package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/apiclient"
	"svc.dev/svc/svclet/events"
	"svc.dev/svc/svclet/nft"
)

func TestAnAgentWithoutProxyAndPoliciesRemovesTheRulesOfOneThatHadThem(t *testing.T) {
	checkRemoved(t, t.TempDir(), func(ctx context.Context, base common) []func(context.Context) {
		_, policies := networkPolicies(ctx, base, connections{})
		return append(newServices(ctx, base, connections{}).tasks.before, policies.before...)
	}, "0", "others")
}

func TestAnAgentThatCannotEnforcePoliciesRemovesTheRulesOfOneThatCould(t *testing.T) {
	checkRemoved(t, t.TempDir(), func(ctx context.Context, base common) []func(context.Context) {
		t.Setenv("PATH", "") // without nft
		recorder := events.New(ctx, nil, apiruntime.NewScheme(), "here", 0, 0)
		defer recorder.Stop()
		base.NetworkPolicy = true
		enforcer, policies := networkPolicies(ctx, base, connections{clients: &apiclient.Clients{}, events: recorder})
		if enforcer != nil {
			t.Error("policies are enforced")
		}
		return policies.before
	}, "1", "svclet", "others")
}

func TestAnAgentThatCannotHaveAProxyRemovesTheRulesOfOneThatHadIt(t *testing.T) {
	checkRemoved(t, t.TempDir(), func(ctx context.Context, base common) []func(context.Context) {
		t.Setenv("PATH", "") // without nft; an old kernel is refused at the same place
		recorder := events.New(ctx, nil, apiruntime.NewScheme(), "here", 0, 0)
		defer recorder.Stop()
		base.ServiceProxy, base.API = true, &rest.Config{}
		n := newServices(ctx, base, connections{clients: &apiclient.Clients{}, events: recorder})
		if len(n.lacks()) != 1 {
			t.Error("services have a proxy")
		}
		return n.tasks.before
	}, "0", "svclet-policies", "svclet-policies", "others")
}

// The rules keep other machines from programs at 127.0.0.1 (CVE-2020-8558).
func TestServiceRulesStayWhileRoutesOfLoopbackAddressesCannotBeRestored(t *testing.T) {
	root := t.TempDir()
	checkRemoved(t, root, func(ctx context.Context, base common) []func(context.Context) {
		kept := filepath.Join(root, "kernel-parameters")
		if err := errors.Join(os.Remove(kept), os.Mkdir(kept, 0o700)); err != nil {
			t.Error(err)
		}
		return newServices(ctx, base, connections{}).tasks.before
	}, "1", "svclet", "svclet-policies", "svclet-policies", "others")
}

// checkRemoved checks which tables are left in a network namespace after the first steps of an agent,
// and whether loopback addresses are routed, which a proxy of the same root directory has made so.
func checkRemoved(t *testing.T, root string, steps func(context.Context, common) []func(context.Context), routed string, want ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip(err)
	}
	const routes = "net/ipv4/conf/all/route_localnet"
	ctx := klog.NewContext(t.Context(), klog.FromContext(t.Context()))
	result := make(chan error)
	var left []string
	var value []byte
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
			base := common{parameters: nft.NewParameters(root)}
			if err := errors.Join(nft.SetParameter(routes, "0"), base.parameters.Set(routes, "1")); err != nil {
				return err
			}
			for _, step := range steps(ctx, base) {
				step(ctx)
			}
			var err, failure error
			left, err = nft.Names()
			value, failure = os.ReadFile(filepath.Join("/proc/sys", routes))
			return errors.Join(err, failure)
		}()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(left, want) || strings.TrimSpace(string(value)) != routed {
		t.Errorf("tables %v are left, %s is %s", left, routes, value)
	}
}
