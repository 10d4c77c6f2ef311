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
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/nft"
)

func TestAnAgentWithoutProxyAndPoliciesRemovesTheRulesOfOneThatHadThem(t *testing.T) {
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
			for _, name := range []string{"svclet", "svclet-policies", "others"} {
				if out, err := exec.CommandContext(ctx, "nft", "add", "table", "ip", name).CombinedOutput(); err != nil {
					return errors.New(string(out))
				}
			}
			before := newServices(ctx, common{}, connections{}).tasks.before
			_, policies := networkPolicies(ctx, common{}, connections{})
			for _, step := range slices.Concat([]func(context.Context){}, before, policies.before) {
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
	if !slices.Equal(left, []string{"others"}) {
		t.Errorf("tables %v are left", left)
	}
}
