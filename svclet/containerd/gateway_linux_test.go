package containerd

import (
	"net"
	"os"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTheBridgeHasTheFirstAddressOfEachRangeBeforeThereArePods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes network interfaces")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Logf("not tested: %v", err)
			return
		}
		c := Config{Bridge: "svctgateway"}
		for range 2 { // it may exist
			got, err := c.gateways([]string{"198.18.7.0/24", "2001:db8:7::/64"})
			if err != nil {
				t.Error(err)
				return
			}
			if len(got) != 2 || got[0].String() != "198.18.7.1" || got[1].String() != "2001:db8:7::1" {
				t.Errorf("the bridge has %v", got)
			}
		}
		listener, err := net.Listen("tcp", "[2001:db8:7::1]:0")
		if err != nil {
			t.Errorf("the address of IPv6 is not usable at once: %v", err)
			return
		}
		listener.Close()
		if got, err := c.gateways(nil); err != nil || len(got) != 0 {
			t.Errorf("without ranges: %v, %v", got, err)
		}
		link, err := net.InterfaceByName("svctgateway")
		if err != nil {
			t.Error(err)
			return
		}
		addresses, err := link.Addrs()
		if err != nil {
			t.Error(err)
		}
		var texts []string
		for _, a := range addresses {
			texts = append(texts, a.String())
		}
		for _, want := range []string{"198.18.7.1/24", "2001:db8:7::1/64"} {
			if !slices.Contains(texts, want) {
				t.Errorf("the bridge has %v, not %s", texts, want)
			}
		}
	}()
	<-done
}
