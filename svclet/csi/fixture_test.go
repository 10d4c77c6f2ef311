package csi

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	eventrecord "k8s.io/client-go/tools/record"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/svclet/csi/csitest"
	"svc.dev/svc/svclet/plugins"
	"svc.dev/svc/svclet/volumeexpansion"
)

const driverName = "hut.example"

// fixture is a manager with a registered driver, and a fake API server.
type fixture struct {
	*testing.T
	*gomega.WithT
	*Manager
	root, sockets string
	client        client.Client
	events        *eventrecord.FakeRecorder
	driver        *csitest.Driver
	object        *storagev1.CSIDriver
	stop          func()

	mu     sync.Mutex
	status corev1.NodeStatus
}

func newFixture(t *testing.T, capabilities ...spec.NodeServiceCapability_RPC_Type) *fixture {
	t.Helper()
	sockets, err := os.MkdirTemp("", "csi") // the path of a socket is short
	f := &fixture{T: t, WithT: gomega.NewWithT(t), events: eventrecord.NewFakeRecorder(100), root: t.TempDir(), sockets: sockets}
	f.SetDefaultEventuallyTimeout(time.Minute)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { os.RemoveAll(sockets) })
	f.object = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}
	f.client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithStatusSubresource(&corev1.PersistentVolumeClaim{}).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n"}}, f.object,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "default"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "key"}, Data: map[string][]byte{"k": []byte("v")}},
	).Build()
	f.start()
	f.driver, err = csitest.Start(csitest.Options{
		Name: driverName, NodeID: "hut-1", Registry: f.registry(), Dir: sockets, Capabilities: capabilities,
		Topology: map[string]string{"hut.example/zone": "a"},
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	t.Cleanup(func() { f.driver.Stop() })
	f.awaitDriver()
	return f
}

func (f *fixture) registry() string { return filepath.Join(f.sockets, "reg") }

func (f *fixture) awaitDriver() {
	f.Helper()
	f.Eventually(func() error { _, err := f.drivers.get(driverName); return err }).Should(gomega.Succeed())
}

// start starts an agent's manager, as after a restart if there was one before.
func (f *fixture) start() {
	f.Helper()
	if f.stop != nil {
		f.stop()
	}
	var err error
	f.Manager, err = New(Options{
		RootDir: f.root, NodeName: "n1", Client: f.client, Clock: clock.RealClock{}, ControllerAttaches: true,
		Expansion: volumeexpansion.New(volumeexpansion.Options{NodeName: "n1", Client: f.client, Events: f.events, Clock: clock.RealClock{}}),
		Mounted:   func(path string) (bool, error) { _, err := os.Lstat(path); return false, err },
		Node: func() *corev1.Node {
			f.mu.Lock()
			defer f.mu.Unlock()
			return &corev1.Node{Status: *f.status.DeepCopy()}
		},
		InUseChanged: func() {
			all := f.InUse()
			f.mu.Lock()
			defer f.mu.Unlock()
			f.status.VolumesInUse = all
		},
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(context.Background())
	watcher := plugins.New(plugins.Options{Dir: f.registry(), Handlers: map[string]plugins.Handler{registerapi.CSIPlugin: f.Manager}, Clock: clock.RealClock{}})
	var running sync.WaitGroup
	running.Go(func() { watcher.Run(ctx) })
	f.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.Cleanup(f.stop)
}

// change changes the CSIDriver.
func (f *fixture) change(what func(*storagev1.CSIDriverSpec)) {
	f.Helper()
	what(&f.object.Spec)
	f.Expect(f.client.Update(f.Context(), f.object)).To(gomega.Succeed())
}

func podOf(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + string(uid), UID: uid}, Spec: corev1.PodSpec{ServiceAccountName: "default"}}
}

// persistent returns a volume of a pod that is bound to a claim.
func persistent(uid types.UID, change ...func(*Volume)) Volume {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	v := Volume{
		Pod: podOf(uid), Name: "data",
		PV: &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, MountOptions: []string{"noatime"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "h1", FSType: "ext4", VolumeAttributes: map[string]string{"color": "red"},
			}},
		}},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Status: corev1.PersistentVolumeClaimStatus{Capacity: size.DeepCopy()},
		},
	}
	for _, c := range change {
		c(&v)
	}
	return v
}

func (f *fixture) publish(v Volume) Published {
	f.Helper()
	published, err := f.Publish(f.Context(), v)
	f.Expect(err).NotTo(gomega.HaveOccurred())
	return published
}

// expectNothingLeft checks that neither volumes nor records are left.
func (f *fixture) expectNothingLeft() {
	f.Helper()
	var left []string
	err := filepath.WalkDir(f.root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err == nil && (!entry.IsDir() || slices.Contains([]string{"mount", "globalmount", "pv1"}, name)) {
			left = append(left, path)
		}
		return err
	})
	f.Expect(err).NotTo(gomega.HaveOccurred())
	f.Expect(left).To(gomega.BeEmpty())
	f.Expect(f.InUse()).To(gomega.BeEmpty())
}
