package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"svc.dev/svc/svclet/netnstest"
)

func TestABridgeIsOfOneContainerdInItsNetworkNamespace(t *testing.T) {
	const name = "svctlocked"
	netnstest.Run(t, "", func(t *testing.T) {
		held, err := lockBridge(name, "stop that")
		if err != nil {
			t.Error(err)
			return
		}
		dir := filepath.Join(t.TempDir(), "second")
		_, err = Start(t.Context(), Config{Dir: dir, Bridge: name})
		if err == nil || !strings.HasPrefix(err.Error(), "the network bridge "+name+" is in use by another svclet") || strings.Contains(err.Error(), "\n") {
			t.Errorf("a second containerd: %v", err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("its directory has been made: %v", err)
		}
		other, err := lockBridge(name+"b", "stop that")
		if err != nil {
			t.Errorf("another bridge: %v", err)
			return
		}
		other.Close()
		netnstest.Run(t, "", func(t *testing.T) {
			elsewhere, err := lockBridge(name, "stop that")
			if err != nil {
				t.Errorf("another network namespace: %v", err)
				return
			}
			elsewhere.Close()
		})
		held.Close()
		again, err := lockBridge(name, "stop that")
		if err != nil {
			t.Errorf("after the first has ended: %v", err)
			return
		}
		again.Close()
	})
}
