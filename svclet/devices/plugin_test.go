package devices

import (
	"path/filepath"
	"testing"

	"github.com/onsi/gomega"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"svc.dev/svc/svclet/plugins"
)

func TestDeregisteringAPluginDoesNotStopTheOneThatReplacedIt(t *testing.T) {
	f := newFixture(t, t.TempDir())
	at := func(socket string) plugins.Plugin {
		return plugins.Plugin{Name: gpu, Endpoint: filepath.Join(f.dir, socket), Versions: []string{pluginapi.Version}}
	}
	f.serve("old.sock", on(0, "a"))
	f.Expect(f.Register(t.Context(), at("old.sock"))).To(gomega.Succeed())
	f.Eventually(f.counts).Should(gomega.Equal("1/1"))
	next := f.serve("new.sock", on(0, "a"), on(0, "b"))
	f.Expect(f.Register(t.Context(), at("new.sock"))).To(gomega.Succeed())
	f.Eventually(f.counts).Should(gomega.Equal("2/2"))

	f.Deregister(t.Context(), at("old.sock"))
	next.list <- []*pluginapi.Device{on(0, "a"), on(0, "b"), on(0, "c")}
	f.Eventually(f.counts).Should(gomega.Equal("3/3"))
	f.Deregister(t.Context(), at("new.sock"))
	f.Eventually(f.counts).Should(gomega.Equal("3/0"))
}
