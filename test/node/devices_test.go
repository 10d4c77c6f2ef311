package node

import (
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"svc.dev/svc/svclet/devices/devicetest"
)

// cdiDir is a directory in which container runtimes look for the specifications of CDI devices.
const cdiDir = "/var/run/cdi"

// writeCDI writes the specification of a CDI device, which is removed after the spec.
func writeCDI(file, content string) {
	GinkgoHelper()
	Expect(os.MkdirAll(cdiDir, 0o755)).To(Succeed())
	path := filepath.Join(cdiDir, file)
	Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	DeferCleanup(func() {
		Expect(os.Remove(path)).To(Succeed())
		if err := os.Remove(cdiDir); !errors.Is(err, unix.ENOTEMPTY) {
			Expect(err).NotTo(HaveOccurred())
		}
	})
}

var _ = Describe("a device plugin", func() {
	It("gives containers devices of the machine, variables, mounts and CDI devices", func(ctx SpecContext) {
		own := newDir()
		response := &pluginapi.ContainerAllocateResponse{
			Envs:    map[string]string{"THING": "one"},
			Devices: []*pluginapi.DeviceSpec{{ContainerPath: "/dev/thing", HostPath: "/dev/zero", Permissions: "r"}},
			Mounts:  []*pluginapi.Mount{{ContainerPath: "/thing", HostPath: own, ReadOnly: true}},
		}
		cdi := runtimeIsAtLeast(ctx, nodeName(), "1.7.0")
		if cdi {
			writeCDI("svc-test.json", `{"cdiVersion": "0.5.0", "kind": "svc-test.example/thing", "devices": [{"name": "one",
				"containerEdits": {"env": ["BY_CDI=yes"], "deviceNodes": [{"path": "/dev/bycdi", "hostPath": "/dev/null"}]}}]}`)
			response.CdiDevices = []*pluginapi.CDIDevice{{Name: "svc-test.example/thing=one"}}
		}
		plugin, err := devicetest.Start(devicetest.Options{
			Resource: "svc-test.example/thing", Devices: []string{"one"}, Response: response,
			Registry: filepath.Join(node.DataDir, "svclet", "plugins_registry"), Dir: own, Called: func(string, any) {},
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(plugin.Stop)
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: uses}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"], resources: {limits: {svc-test.example/thing: "1"}}}
  - {name: other, image: "localhost/svc/busybox:1", command: [sleep, "1000"]}
`)
		s.await(ctx, "uses", beReady())
		Expect(s.exec(ctx, "uses", "echo $THING; head -c 1 /dev/thing | wc -c; touch /thing/x 2>&1; true")).To(MatchRegexp("^one\n1\n.*Read-only file system"))
		if cdi {
			Expect(s.exec(ctx, "uses", "echo $BY_CDI; test -c /dev/bycdi && echo device")).To(Equal("yes\ndevice\n"))
		}
		Expect(s.run(ctx, "exec", "uses", "--container=other", "--", "sh", "-c", "echo $THING$BY_CDI; ls /dev")).NotTo(Or(ContainSubstring("one"), ContainSubstring("thing"), ContainSubstring("yes")))
	})
})
