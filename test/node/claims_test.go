package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/csi/csitest"
	"svc.dev/svc/test/launch"
)

// claim creates a PersistentVolume with a source, and a claim of the same name, and binds
// them, unless a controller is faster.
func claim(ctx context.Context, s space, name string, mode corev1.PersistentVolumeMode, source string) {
	GinkgoHelper()
	volume := s.name + "-" + name
	s.apply(ctx, strings.NewReplacer("VOLUME", volume, "CLAIM", name, "MODE", string(mode), "SOURCE", source).Replace(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: VOLUME}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  volumeMode: MODE
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: "${NAMESPACE}", name: CLAIM}
  SOURCE
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: CLAIM}
spec: {accessModes: [ReadWriteOnce], volumeMode: MODE, resources: {requests: {storage: 1Gi}}, storageClassName: "", volumeName: VOLUME}
`))
	DeferCleanup(func(ctx SpecContext) { s.run(ctx, "delete", "pv", volume, "--wait=false") })
	Eventually(func(g Gomega) {
		c, v := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: name}, c)).To(Succeed())
		g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: volume}, v)).To(Succeed())
		if c.Status.Phase == corev1.ClaimBound {
			return
		}
		v.Spec.ClaimRef.UID = c.UID
		g.Expect(client.Update(ctx, v)).To(Succeed())
		c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
		g.Expect(client.Update(ctx, c)).To(Succeed())
		c.Status.Phase, c.Status.Capacity = corev1.ClaimBound, v.Spec.Capacity
		g.Expect(client.Status().Update(ctx, c)).To(Succeed())
	}).Should(Succeed())
}

var _ = Describe("persistent volumes", func() {
	affinity := func(ctx context.Context) string {
		return `nodeAffinity: {required: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: ["` + nodeName() + `"]}]}]}}`
	}

	It("of types local and hostPath are mounted, and keep their data", func(ctx SpecContext) {
		s := newSpace(ctx)
		dir := newDir()
		claim(ctx, s, "local", corev1.PersistentVolumeFilesystem, "local: {path: "+dir+"}\n  "+affinity(ctx))
		claim(ctx, s, "host", corev1.PersistentVolumeFilesystem, "hostPath: {path: "+filepath.Join(dir, "host")+", type: DirectoryOrCreate}")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: keeper}
spec:
  restartPolicy: Never
  securityContext: {fsGroup: 4242}
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo kept > /local/file; echo kept > /host/file; stat -c %g /local']
    volumeMounts: [{name: local, mountPath: /local}, {name: host, mountPath: /host}]
  volumes:
  - {name: local, persistentVolumeClaim: {claimName: local}}
  - {name: host, persistentVolumeClaim: {claimName: host}}
`)
		s.await(ctx, "keeper", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "keeper")).To(Equal("4242\n"))
		s.run(ctx, "delete", "pod", "keeper")
		for _, path := range []string{"file", "host/file"} {
			Expect(os.ReadFile(filepath.Join(dir, path))).To(BeEquivalentTo("kept\n"))
		}
	})

	It("of type local with volumeMode Block are devices", func(ctx SpecContext) {
		s := newSpace(ctx)
		claim(ctx, s, "disk", corev1.PersistentVolumeBlock, "local: {path: "+loopDevice(ctx, 1<<20)+"}\n  "+affinity(ctx))
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo raw > /dev/disk; head -c 4 /dev/disk; stat -c %F /dev/disk']
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`)
		s.await(ctx, "writer", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "writer")).To(Equal("raw\nblock special file\n"))
	})

	It("of type local that are block devices get a file system, which pods share and keep", func(ctx SpecContext) {
		s := newSpace(ctx)
		claim(ctx, s, "disk", corev1.PersistentVolumeFilesystem, "local: {path: "+loopDevice(ctx, 16<<20)+"}\n  "+affinity(ctx))
		pod := func(name, command string) string {
			return `
apiVersion: v1
kind: Pod
metadata: {name: ` + name + `}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {fsGroup: 4242}
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, '` + command + `; exec sleep 1000']
    volumeMounts: [{name: disk, mountPath: /disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`
		}
		s.apply(ctx, pod("writer", "echo kept > /disk/file"))
		s.await(ctx, "writer", beReady())
		s.apply(ctx, pod("reader", "true"))
		s.await(ctx, "reader", beReady())
		s.run(ctx, "delete", "pod", "writer")
		Expect(s.exec(ctx, "reader", "cat /disk/file; stat -c %g /disk; stat -f -c %T /disk")).To(Equal("kept\n4242\next2/ext3\n"))

		name := s.run(ctx, "get", "pvc", "disk", "-o", "jsonpath={.spec.volumeName}")
		mountOf := func() (string, error) {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			return string(mounts), err
		}
		Expect(mountOf()).To(ContainSubstring("/svclet/plugins/kubernetes.io/local-volume/mounts/" + name))
		s.run(ctx, "delete", "pod", "reader")
		Eventually(mountOf).ShouldNot(ContainSubstring("/local-volume/mounts/" + name))

		By("a file system that is there is not made again")
		s.apply(ctx, pod("again", "true"))
		s.await(ctx, "again", beReady())
		Expect(s.exec(ctx, "again", "cat /disk/file")).To(Equal("kept\n"))
	})

	It("of CSI drivers are staged, published and released by the driver", func(ctx SpecContext) {
		s := newSpace(ctx)
		own := newDir()
		options := driverOptions("test.csi.example", own)
		driver := startDriver(ctx, s, options)

		claim(ctx, s, "data", corev1.PersistentVolumeFilesystem, "csi: {driver: test.csi.example, volumeHandle: "+s.name+"}")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {fsGroup: 4242}
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo kept > /data/file; exec sleep 1000']
    volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: scratch, csi: {driver: test.csi.example}}
`)
		p := s.await(ctx, "user", beReady())
		Expect(s.exec(ctx, "user", "cat /data/file; stat -c %g /data")).To(Equal("kept\n4242\n"))
		Expect(os.ReadFile(filepath.Join(own, "volumes", s.name, "file"))).To(BeEquivalentTo("kept\n"))

		By("even if the driver restarts before")
		driver.Stop()
		s.run(ctx, "delete", "pod", "user", "--wait=false")
		Eventually(s.events(ctx, "user")).Should(ContainElement(ContainSubstring("not found in the list of registered CSI drivers")))
		driver = runDriver(options)
		Eventually(func() error { _, err := s.get(ctx, "user"); return err }).Should(MatchError(ContainSubstring("not found")))
		Eventually(driver.Calls).Should(ContainElements("unpublish "+s.name, "unstage "+s.name))
		Eventually(filepath.Join(node.DataDir, "svclet/pods", string(p.UID))).ShouldNot(BeADirectory())
		Expect(os.ReadFile(filepath.Join(own, "volumes", s.name, "file"))).To(BeEquivalentTo("kept\n"))
		Expect(os.ReadFile("/proc/self/mountinfo")).NotTo(ContainSubstring(own))
	})

	It("of CSI drivers keep their data, outlive a restart of the driver, and grow in use", func(ctx SpecContext) {
		s := newSpace(ctx)
		own, device := newDir(), loopDevice(ctx, 1<<20)
		Expect(os.Mkdir(filepath.Join(own, "devices"), 0o755)).To(Succeed())
		Expect(os.Symlink(device, filepath.Join(own, "devices", s.name+"-disk"))).To(Succeed())
		options := driverOptions("keeping.csi.example", own)
		options.Capabilities = append(options.Capabilities, spec.NodeServiceCapability_RPC_EXPAND_VOLUME)
		driver := startDriver(ctx, s, options)
		claim(ctx, s, "data", corev1.PersistentVolumeFilesystem, "csi: {driver: keeping.csi.example, volumeHandle: "+s.name+"}")
		claim(ctx, s, "disk", corev1.PersistentVolumeBlock, "csi: {driver: keeping.csi.example, volumeHandle: "+s.name+"-disk}")
		pod := `
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sleep, "100000"]
    volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: part}, {name: scratch, mountPath: /scratch}]
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: scratch, csi: {driver: keeping.csi.example}}
`
		s.apply(ctx, pod)
		s.await(ctx, "user", beReady())
		s.exec(ctx, "user", "echo kept > /part/file; echo gone > /scratch/file; printf raw > /dev/disk; sync")
		Expect(os.ReadFile(filepath.Join(own, "volumes", s.name, "part/file"))).To(BeEquivalentTo("kept\n"))

		By("in a pod that runs on while the driver restarts")
		driver.Stop()
		driver = runDriver(options)
		Eventually(driver.Registered).ShouldNot(BeEmpty())
		Expect(s.exec(ctx, "user", "echo more >> /part/file; cat /data/part/file /scratch/file; head -c 3 /dev/disk")).To(Equal("kept\nmore\ngone\nraw"))
		Expect(s.await(ctx, "user", beReady())).To(container("main", HaveField("RestartCount", BeZero())))
		Expect(driver.Calls()).To(BeEmpty(), "there is nothing to do")

		By("in the next pod, but for the inline volume")
		s.run(ctx, "delete", "pod", "user")
		s.apply(ctx, pod)
		s.await(ctx, "user", beReady())
		Expect(s.exec(ctx, "user", "cat /part/file; ls /scratch; head -c 3 /dev/disk")).To(Equal("kept\nmore\nraw"))

		By("expanding the volume")
		volume, c := &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}
		Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: s.name + "-data"}, volume)).To(Succeed())
		volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		Expect(client.Update(ctx, volume)).To(Succeed())
		looks := 0
		Eventually(func(g Gomega) { // the agent looks at the volumes of a pod whose labels change, else once a minute
			g.Expect(client.Patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "user"}}, ctrlclient.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"looked":"%d"}}}`, looks)))).To(Succeed())
			looks++
			g.Expect(client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: "data"}, c)).To(Succeed())
			g.Expect(c.Status.Capacity.Storage().String()).To(Equal("2Gi"))
		}).Should(Succeed())
		Expect(driver.Expanded()).To(HaveLen(1))

		By("leaving nothing")
		s.run(ctx, "delete", "pod", "user")
		Eventually(driver.Calls).Should(ContainElements("unstage "+s.name, "unstage "+s.name+"-disk"))
		// The inline volume is not staged, and may be the last.
		Eventually(func() (string, error) {
			mounts, err := os.ReadFile("/proc/self/mountinfo")
			return string(mounts), err
		}).ShouldNot(Or(ContainSubstring(own), ContainSubstring("volumeDevices")))
	})

	It("of CSI drivers with volumeMode Block are devices that the driver publishes", func(ctx SpecContext) {
		s := newSpace(ctx)
		own, device := newDir(), loopDevice(ctx, 1<<20)
		Expect(os.Mkdir(filepath.Join(own, "devices"), 0o755)).To(Succeed())
		Expect(os.Symlink(device, filepath.Join(own, "devices", s.name))).To(Succeed())
		driver := startDriver(ctx, s, driverOptions("block.csi.example", own))
		claim(ctx, s, "disk", corev1.PersistentVolumeBlock, "csi: {driver: block.csi.example, volumeHandle: "+s.name+"}")
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: writer}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: localhost/svc/busybox:1
    command: [sh, -c, 'echo raw > /dev/disk; head -c 4 /dev/disk; stat -c %F /dev/disk']
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`)
		s.await(ctx, "writer", inPhase(corev1.PodSucceeded))
		Expect(s.run(ctx, "logs", "writer")).To(Equal("raw\nblock special file\n"))
		Expect(os.ReadFile(device)).To(HavePrefix("raw\n"))
		s.run(ctx, "delete", "pod", "writer")
		Eventually(driver.Calls).Should(ContainElements("stage "+s.name, "publish "+s.name, "unpublish "+s.name, "unstage "+s.name))
		Expect(os.ReadFile("/proc/self/mountinfo")).NotTo(ContainSubstring("volumeDevices"))
	})
})

// driverOptions returns the options of a CSI driver with real mounts, whose volumes are below a
// directory.
func driverOptions(name, dir string) csitest.Options {
	return csitest.Options{
		Name: name, NodeID: "here", Registry: filepath.Join(node.DataDir, "svclet/plugins_registry"), Dir: dir,
		Capabilities: []spec.NodeServiceCapability_RPC_Type{spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME},
		Mount: func(source, target string) error {
			info, err := os.Stat(source)
			if err == nil && info.IsDir() {
				err = os.MkdirAll(target, 0o750)
			}
			if err != nil {
				return err
			}
			return unix.Mount(source, target, "", unix.MS_BIND, "")
		},
		Unmount: func(target string) error {
			if err := unix.Unmount(target, 0); err != nil {
				return err
			}
			return os.Remove(target)
		},
	}
}

// runDriver runs a CSI driver until the end of the spec.
func runDriver(o csitest.Options) *csitest.Driver {
	GinkgoHelper()
	driver, err := csitest.Start(o)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(driver.Stop)
	return driver
}

// startDriver starts a CSI driver, and waits until the node has it.
func startDriver(ctx context.Context, s space, o csitest.Options) *csitest.Driver {
	GinkgoHelper()
	driver := runDriver(o)
	s.apply(ctx, strings.ReplaceAll(`
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: DRIVER}
spec: {attachRequired: false, podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Persistent, Ephemeral]}
`, "DRIVER", o.Name))
	DeferCleanup(func(ctx SpecContext) { s.run(ctx, "delete", "csidriver", o.Name) })
	Eventually(func() (*storagev1.CSINode, error) {
		n := &storagev1.CSINode{}
		return n, client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName()}, n)
	}).Should(HaveField("Spec.Drivers", ContainElement(And(HaveField("Name", o.Name), HaveField("NodeID", "here")))))
	return driver
}

// loopDevice returns a loop device of a new file, of a size in bytes.
func loopDevice(ctx context.Context, size int64) string {
	GinkgoHelper()
	device, detach, err := launch.LoopDevice(ctx, filepath.Join(newDir(), "disk"), size)
	if err != nil {
		Skip(err.Error())
	}
	DeferCleanup(detach)
	return device
}
