package node

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/csi/csitest"
)

// claimOf returns the manifest of a claim; more is added to its spec.
func claimOf(name, class, size, more string) string {
	return strings.NewReplacer("NAME", name, "CLASS", class, "SIZE", size, "MORE", more).Replace(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: NAME}
spec: {accessModes: [ReadWriteOnce], storageClassName: CLASS, resources: {requests: {storage: SIZE}}MORE}
---`)
}

// podWith returns the manifest of a pod that mounts claims at /NAME.
func podWith(name string, claims ...string) string {
	var mounts, volumes []string
	for _, c := range claims {
		mounts = append(mounts, "{name: "+c+", mountPath: /"+c+"}")
		volumes = append(volumes, "{name: "+c+", persistentVolumeClaim: {claimName: "+c+"}}")
	}
	return strings.NewReplacer("NAME", name, "MOUNTS", strings.Join(mounts, ", "), "VOLUMES", strings.Join(volumes, ", ")).Replace(`
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sleep, "100000"], volumeMounts: [MOUNTS]}
  volumes: [VOLUMES]
---`)
}

// claim returns a claim.
func (s space) claim(ctx context.Context, name string) (*corev1.PersistentVolumeClaim, error) {
	c := &corev1.PersistentVolumeClaim{}
	return c, client.Get(ctx, ctrlclient.ObjectKey{Namespace: s.name, Name: name}, c)
}

// awaitClaim waits until a claim matches, and returns it.
func (s space) awaitClaim(ctx context.Context, name string, matcher gomegatypes.GomegaMatcher) *corev1.PersistentVolumeClaim {
	GinkgoHelper()
	var c *corev1.PersistentVolumeClaim
	Eventually(func() (*corev1.PersistentVolumeClaim, error) {
		var err error
		c, err = s.claim(ctx, name)
		return c, err
	}).Should(matcher)
	return c
}

func beBound() gomegatypes.GomegaMatcher { return HaveField("Status.Phase", corev1.ClaimBound) }

// attachments returns the attachments of a volume.
func attachments(ctx context.Context, volume string) func() ([]storagev1.VolumeAttachment, error) {
	return func() ([]storagev1.VolumeAttachment, error) {
		var list storagev1.VolumeAttachmentList
		err := client.List(ctx, &list)
		return slices.DeleteFunc(list.Items, func(a storagev1.VolumeAttachment) bool {
			return a.Spec.Source.PersistentVolumeName == nil || *a.Spec.Source.PersistentVolumeName != volume
		}), err
	}
}

// calls returns the calls of a driver that are about a volume or a snapshot.
func calls(d *csitest.Driver, handle string) func() []string {
	return func() []string {
		var all []string
		for _, call := range d.Calls() {
			if method, ok := strings.CutSuffix(call, " "+handle); ok {
				all = append(all, method)
			}
		}
		return all
	}
}

// count returns how many of the calls are of a method.
func count(all []string, method string) int {
	return len(slices.DeleteFunc(slices.Clone(all), func(m string) bool { return m != method }))
}

var _ = Describe("the sidecars of a CSI driver", Ordered, ContinueOnFailure, func() {
	var c *csiSystem
	// gate is called with the name of each call of the driver.
	var gate atomic.Pointer[func(method string)]

	BeforeAll(func(ctx SpecContext) {
		if os.Getenv("PROGRAMS") == "" {
			Skip("takes many minutes to build: run PROGRAMS=true make test-node")
		}
		c = newCSISystem(ctx, "sidecars", func(o *csitest.Options) {
			o.Called = func(method string, _ any) {
				if wait := gate.Load(); wait != nil {
					(*wait)(method)
				}
			}
		})
		c.startSidecars(ctx)
		c.startSnapshots(ctx)
	})
	ReportAfterEach(func(report SpecReport) { c.report(report) })

	It("create a volume, attach it where a pod uses it, and delete it with its claim", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, claimOf("now", "sidecars-immediate", "1Gi", "")+claimOf("later", "sidecars-waiting", "1Gi", ""))
		now := s.awaitClaim(ctx, "now", beBound())
		Expect(now.Annotations).To(And(HaveKeyWithValue("volume.kubernetes.io/storage-provisioner", "sidecars.csi.example"), HaveKeyWithValue("pv.kubernetes.io/bind-completed", "yes")))
		Expect(now.Annotations).NotTo(HaveKey("volume.kubernetes.io/selected-node"))
		Expect(c.backend.Volumes()).To(HaveKeyWithValue(now.Spec.VolumeName, And(HaveField("Bytes", BeEquivalentTo(1<<30)), HaveField("Parameters", HaveKeyWithValue("kind", "fast")))))
		Consistently(func() (*corev1.PersistentVolumeClaim, error) { return s.claim(ctx, "later") }).Should(HaveField("Status.Phase", corev1.ClaimPending))

		s.apply(ctx, podWith("user", "now", "later"))
		s.await(ctx, "user", beReady())
		later := s.awaitClaim(ctx, "later", beBound())
		Expect(later.Annotations).To(HaveKeyWithValue("volume.kubernetes.io/selected-node", nodeName()))
		volume := &corev1.PersistentVolume{}
		for _, name := range []string{now.Spec.VolumeName, later.Spec.VolumeName} {
			Expect(client.Get(ctx, ctrlclient.ObjectKey{Name: name}, volume)).To(Succeed())
			Expect(volume.Finalizers).To(ConsistOf("kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer", "external-attacher/sidecars-csi-example"))
			Expect(volume.Annotations).To(HaveKeyWithValue("pv.kubernetes.io/provisioned-by", "sidecars.csi.example"))
			Expect(attachments(ctx, name)()).To(ConsistOf(And(
				HaveField("Spec.NodeName", nodeName()), HaveField("Status.Attached", BeTrue()),
				HaveField("Status.AttachmentMetadata", HaveKeyWithValue("attached", nodeName())), HaveField("Finalizers", ConsistOf("external-attacher/sidecars-csi-example")))))
			Expect(c.backend.Volumes()[name].Nodes).To(ConsistOf(nodeName()))
		}
		Expect(c.driver.Staged()).To(ContainElement(HaveField("PublishContext", HaveKeyWithValue("attached", nodeName()))))
		Eventually(s.events(ctx, "user")).Should(ContainElement(ContainSubstring(`SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume "` + now.Spec.VolumeName)))
		Eventually(s.events(ctx, "now")).Should(ContainElement(HavePrefix("ProvisioningSucceeded: ")))
		s.exec(ctx, "user", "echo kept > /now/file")

		By("detach it when the pod has gone")
		s.run(ctx, "delete", "pod", "user")
		Eventually(attachments(ctx, now.Spec.VolumeName)).Should(BeEmpty())
		Expect(c.backend.Volumes()[now.Spec.VolumeName].Nodes).To(BeEmpty())
		Eventually(func() (*corev1.Node, error) {
			n := &corev1.Node{}
			return n, client.Get(ctx, ctrlclient.ObjectKey{Name: nodeName()}, n)
		}).Should(HaveField("Status", And(HaveField("VolumesAttached", BeEmpty()), HaveField("VolumesInUse", BeEmpty()))))
		s.apply(ctx, podWith("user", "now"))
		s.await(ctx, "user", beReady())
		Expect(s.exec(ctx, "user", "cat /now/file")).To(Equal("kept\n"))

		By("not delete it while the pod uses it")
		s.run(ctx, "delete", "pvc", "now", "later", "--wait=false")
		Eventually(c.backend.Volumes).ShouldNot(HaveKey(later.Spec.VolumeName))
		Expect(c.backend.Volumes()).To(HaveKey(now.Spec.VolumeName))
		s.run(ctx, "delete", "pod", "user")
		Eventually(c.backend.Volumes).ShouldNot(HaveKey(now.Spec.VolumeName))
		Eventually(func() string {
			return run(ctx, "get", "pv", now.Spec.VolumeName, later.Spec.VolumeName, "--ignore-not-found")
		}).Should(BeEmpty())
		Expect(slices.Compact(calls(c.driver, now.Spec.VolumeName)())).To(Equal([]string{ // the sidecars repeat some until their caches have what they have written
			"create", "attach", "stage", "publish", "unpublish", "unstage", "detach", "attach", "stage", "publish", "unpublish", "unstage", "detach", "delete",
		}))
		Expect(filepath.Join(c.options.Dir, "volumes", now.Spec.VolumeName)).NotTo(BeADirectory())
	})

	It("give the pods of a stateful set their volumes, also of ephemeral claims", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  serviceName: db
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Delete}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      securityContext: {fsGroup: 4242}
      containers:
      - name: main
        image: localhost/svc/busybox:1
        command: [sh, -c, 'hostname >> /data/log; exec sleep 100000']
        volumeMounts: [{name: data, mountPath: /data}, {name: scratch, mountPath: /scratch}]
      volumes:
      - name: scratch
        ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: sidecars-waiting, resources: {requests: {storage: 1Gi}}}}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: sidecars-waiting, resources: {requests: {storage: 1Gi}}}
`)
		s.run(ctx, "rollout", "status", "statefulset/db")
		for _, pod := range []string{"db-0", "db-1"} {
			Expect(s.exec(ctx, pod, "cat /data/log; stat -c %g /data /scratch")).To(Equal(pod + "\n4242\n4242\n"))
		}
		s.run(ctx, "delete", "pod", "db-0")
		Eventually(func() string { out, _ := s.try(ctx, "exec", "db-0", "--", "cat", "/data/log"); return out }).Should(Equal("db-0\ndb-0\n"))
		volume := s.awaitClaim(ctx, "data-db-1", beBound()).Spec.VolumeName
		s.run(ctx, "scale", "statefulset/db", "--replicas=1")
		Eventually(c.backend.Volumes).ShouldNot(HaveKey(volume))
		s.run(ctx, "delete", "statefulset", "db")
		Eventually(c.backend.Volumes).Should(BeEmpty())
	})

	It("expand a volume in use", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, claimOf("data", "sidecars-waiting", "1Gi", "")+podWith("user", "data"))
		s.await(ctx, "user", beReady())
		volume := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		w, err := client.Watch(ctx, &corev1.PersistentVolumeClaimList{}, ctrlclient.InNamespace(s.name))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		s.run(ctx, "patch", "pvc", "data", "--type=merge", `-p={"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`)
		if servedRelease(ctx) >= 32 { // with RecoverVolumeExpansionFailure
			for _, state := range []corev1.ClaimResourceStatus{corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimNodeResizePending, corev1.PersistentVolumeClaimNodeResizeInProgress} {
				Eventually(w.ResultChan()).Should(Receive(HaveField("Object.Status.AllocatedResourceStatuses", HaveKeyWithValue(corev1.ResourceStorage, state))), string(state))
			}
		} else {
			Eventually(w.ResultChan()).Should(Receive(HaveField("Object.Status.Conditions", ContainElement(HaveField("Type", corev1.PersistentVolumeClaimResizing)))))
		}
		done := s.awaitClaim(ctx, "data", HaveField("Status", And(
			HaveField("Capacity", WithTransform(func(l corev1.ResourceList) string { return l.Storage().String() }, Equal("2Gi"))),
			HaveField("Conditions", Not(ContainElement(HaveField("Type", BeElementOf(corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending))))),
			HaveField("AllocatedResourceStatuses", BeEmpty()),
		)))
		if servedRelease(ctx) >= 32 {
			Expect(done.Status.AllocatedResources.Storage().String()).To(Equal("2Gi"))
		}
		Expect(count(calls(c.driver, volume)(), "grow")).To(Equal(1))
		Expect(count(calls(c.driver, volume)(), "expand")).To(Equal(1))
		Expect(c.backend.Volumes()[volume].Bytes).To(BeEquivalentTo(2 << 30))
		Eventually(s.events(ctx, "data")).Should(ContainElements(HavePrefix("ExternalExpanding: "), HavePrefix("Resizing: "), HavePrefix("FileSystemResizeRequired: "), HavePrefix("FileSystemResizeSuccessful: ")))
		Eventually(s.events(ctx, "user")).Should(ContainElement(HavePrefix("FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume \"" + volume)))

		By("and not again")
		s.run(ctx, "delete", "pod", "user")
		s.apply(ctx, podWith("user", "data"))
		s.await(ctx, "user", beReady())
		Expect(count(calls(c.driver, volume)(), "expand")).To(Equal(1))
	})

	It("make snapshots, and volumes of snapshots and of volumes", func(ctx SpecContext) {
		s := newSpace(ctx)
		run(ctx, "delete", "volumesnapshotclass", "sidecars", "--ignore-not-found")
		s.apply(ctx, claimOf("data", "sidecars-immediate", "1Gi", "")+podWith("user", "data")+`
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: sidecars}
driver: sidecars.csi.example
deletionPolicy: Delete
`)
		s.await(ctx, "user", beReady())
		s.exec(ctx, "user", "echo one > /data/file")
		s.apply(ctx, `
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: first}
spec: {volumeSnapshotClassName: sidecars, source: {persistentVolumeClaimName: data}}
`)
		s.run(ctx, "wait", "volumesnapshot/first", "--for=jsonpath={.status.readyToUse}=true", "--timeout=3m")
		s.exec(ctx, "user", "echo two > /data/file")
		s.apply(ctx, claimOf("restored", "sidecars-waiting", "1Gi", ", dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: first}")+
			claimOf("again", "sidecars-immediate", "2Gi", ", dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: first}")+
			claimOf("cloned", "sidecars-immediate", "1Gi", ", dataSource: {kind: PersistentVolumeClaim, name: data}")+
			podWith("reader", "restored", "again", "cloned"))
		s.await(ctx, "reader", beReady())
		Expect(s.exec(ctx, "reader", "cat /restored/file /again/file /cloned/file")).To(Equal("one\none\ntwo\n"))
		Expect(s.awaitClaim(ctx, "restored", beBound()).Spec.DataSourceRef).To(HaveValue(And(HaveField("Kind", "VolumeSnapshot"), HaveField("Name", "first"))))
		Expect(c.backend.Snapshots()).To(HaveLen(1))
		s.run(ctx, "delete", "pod", "user", "reader")
		s.run(ctx, "delete", "volumesnapshot", "first", "--timeout=3m")
		Eventually(c.backend.Snapshots).Should(BeEmpty())
		s.run(ctx, "delete", "pvc", "--all", "--timeout=3m")
		Eventually(c.backend.Volumes).Should(BeEmpty())
	})

	It("tell why a volume is not attached, in the events of the pod", func(ctx SpecContext) {
		s := newSpace(ctx)
		c.driver.Fail("attach", os.ErrDeadlineExceeded)
		DeferCleanup(func() { c.driver.Fail("attach", nil) })
		s.apply(ctx, claimOf("data", "sidecars-immediate", "1Gi", "")+podWith("user", "data"))
		Eventually(s.events(ctx, "user")).Should(ContainElement(MatchRegexp(`^FailedAttachVolume: AttachVolume.Attach failed for volume "pvc-\S+" : rpc error: code = Internal desc = i/o timeout`)))
		c.driver.Fail("attach", nil)
		s.await(ctx, "user", beReady())
	})

	It("modify a volume by its VolumeAttributesClass", func(ctx SpecContext) {
		if servedRelease(ctx) < 34 {
			Skip("the class is served since release 1.34: set SVC_RELEASE")
		}
		s := newSpace(ctx)
		classes := `
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: sidecars-silver}
driverName: sidecars.csi.example
parameters: {iops: "100"}
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: sidecars-gold}
driverName: sidecars.csi.example
parameters: {iops: "900"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ${NAMESPACE}}
rules: [{apiGroups: [storage.k8s.io], resources: [volumeattributesclasses], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ${NAMESPACE}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ${NAMESPACE}}
subjects: [{kind: ServiceAccount, name: csi-provisioner, namespace: ` + c.name + `}] # its manifest does not permit this
`
		s.apply(ctx, classes+"---"+claimOf("data", "sidecars-immediate", "1Gi", ", volumeAttributesClassName: sidecars-silver"))
		DeferCleanup(func(ctx SpecContext) {
			run(ctx, "delete", "volumeattributesclass", "sidecars-silver", "sidecars-gold", "--wait=false")
		})
		volume := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		Expect(c.backend.Volumes()[volume].Mutable).To(HaveKeyWithValue("iops", "100"))
		s.run(ctx, "patch", "pvc", "data", "--type=merge", `-p={"spec":{"volumeAttributesClassName":"sidecars-gold"}}`)
		s.awaitClaim(ctx, "data", HaveField("Status", And(HaveField("CurrentVolumeAttributesClassName", HaveValue(Equal("sidecars-gold"))), HaveField("ModifyVolumeStatus", BeNil()))))
		Expect(c.backend.Volumes()[volume].Mutable).To(HaveKeyWithValue("iops", "900"))
		Expect(run(ctx, "get", "pv", volume, "-o=jsonpath={.spec.volumeAttributesClassName}")).To(Equal("sidecars-gold"))
	})

	It("give a volume of mode ReadWriteOncePod to one pod", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, strings.ReplaceAll(claimOf("data", "sidecars-waiting", "1Gi", ""), "ReadWriteOnce", "ReadWriteOncePod")+podWith("first", "data"))
		s.await(ctx, "first", beReady())
		s.apply(ctx, podWith("second", "data"))
		Eventually(s.events(ctx, "second")).Should(ContainElement(ContainSubstring("node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod")))
		s.run(ctx, "delete", "pod", "first")
		s.await(ctx, "second", beReady())
	})

	It("attach no more volumes to a node than its driver allows", func(ctx SpecContext) {
		s := newSpace(ctx)
		manifests, names := "", []string{"v0", "v1", "v2", "v3", "v4", "v5", "v6"}
		for _, name := range append(names, "v7") {
			manifests += claimOf(name, "sidecars-immediate", "1Gi", "")
		}
		s.apply(ctx, manifests+podWith("many", names...)) // as many as csitest.Driver allows
		s.await(ctx, "many", beReady())
		s.apply(ctx, podWith("more", "v7"))
		Eventually(s.events(ctx, "more")).Should(ContainElement(And(HavePrefix("FailedScheduling: "), ContainSubstring("node(s) exceed max volume count"))))
		s.run(ctx, "delete", "pod", "many")
		s.await(ctx, "more", beReady())
	})

	It("free a volume of a node that is out of service", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, claimOf("data", "sidecars-immediate", "1Gi", ""))
		volume := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		broken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "broken", Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}}}
		Expect(client.Create(ctx, broken)).To(Succeed())
		driver := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "broken"}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: c.options.Name, NodeID: "broken"}}}}
		Expect(client.Create(ctx, driver)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, broken))).To(Succeed())
			Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, driver))).To(Succeed())
		})
		s.apply(ctx, strings.ReplaceAll(podWith("lost", "data"), "spec:", "spec:\n  nodeName: broken"))
		Eventually(attachments(ctx, volume)).Should(ConsistOf(HaveField("Status.Attached", BeTrue())))
		run(ctx, "patch", "node", "broken", "--subresource=status", "--type=merge", `-p={"status":{"volumesInUse":["kubernetes.io/csi/sidecars.csi.example^`+volume+`"]}}`)
		s.apply(ctx, podWith("user", "data"))
		Eventually(s.events(ctx, "user")).Should(ContainElement(HavePrefix(`FailedAttachVolume: Multi-Attach error for volume "` + volume)))

		run(ctx, "taint", "node", "broken", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
		s.await(ctx, "user", beReady())
		Expect(c.backend.Volumes()[volume].Nodes).To(ConsistOf(nodeName()))
		Expect(s.run(ctx, "get", "pod", "lost", "--ignore-not-found")).To(BeEmpty())
	})

	// interrupt kills svc while a call of the driver waits, and starts it again.
	interrupt := func(ctx context.Context, method string, begin func()) {
		GinkgoHelper()
		called, release := make(chan struct{}), make(chan struct{})
		var reached atomic.Bool
		wait := func(m string) {
			if m == method {
				if reached.CompareAndSwap(false, true) {
					close(called)
				}
				<-release
			}
		}
		gate.Store(&wait)
		defer gate.Store(nil)
		begin()
		Eventually(called).Should(BeClosed(), method)
		node.Kill()
		close(release)
		Expect(node.Again(ctx)).To(Succeed())
		connect()
		c.restartSidecars(ctx)
	}

	It("go on after svc was killed while a volume was attached, or expanded", func(ctx SpecContext) {
		s := newSpace(ctx)
		interrupt(ctx, "ControllerPublishVolume", func() {
			s.apply(ctx, claimOf("data", "sidecars-waiting", "1Gi", "")+podWith("user", "data"))
		})
		s.await(ctx, "user", beReady())
		volume := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		Expect(attachments(ctx, volume)()).To(HaveLen(1))
		s.exec(ctx, "user", "echo kept > /data/file")
		for i, method := range []string{"ControllerExpandVolume", "NodeExpandVolume"} {
			size := []string{"2Gi", "3Gi"}[i]
			By(method)
			interrupt(ctx, method, func() {
				s.run(ctx, "patch", "pvc", "data", "--type=merge", `-p={"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`)
			})
			s.awaitClaim(ctx, "data", HaveField("Status", And(HaveField("AllocatedResourceStatuses", BeEmpty()), HaveField("Conditions", Not(ContainElement(HaveField("Status", corev1.ConditionTrue)))),
				WithTransform(func(st corev1.PersistentVolumeClaimStatus) string { return st.Capacity.Storage().String() }, Equal(size)))))
		}
		Expect(s.exec(ctx, "user", "cat /data/file")).To(Equal("kept\n"))
		Expect(s.await(ctx, "user", beReady())).To(container("main", HaveField("RestartCount", BeZero())))

		By("detach")
		interrupt(ctx, "ControllerUnpublishVolume", func() { s.run(ctx, "delete", "pod", "user") })
		Eventually(attachments(ctx, volume)).Should(BeEmpty())
		s.run(ctx, "delete", "pvc", "data", "--timeout=3m")
		Eventually(c.backend.Volumes).ShouldNot(HaveKey(volume))
	})
})

var _ = Describe("the capacity that a CSI driver reports", func() {
	It("decides where a pod with a claim goes", func(ctx SpecContext) {
		if os.Getenv("PROGRAMS") == "" {
			Skip("takes many minutes to build: run PROGRAMS=true make test-node")
		}
		c := newCSISystem(ctx, "counted", func(o *csitest.Options) {
			o.Topology = map[string]string{"counted.csi.example/node": nodeName()}
		})
		DeferCleanup(func() { c.report(CurrentSpecReport()) })
		c.backend.SetCapacity(1 << 30)
		c.startSidecars(ctx)
		c.sidecar(ctx, "csi-provisioner", append(c.args["csi-provisioner"], "--enable-capacity", "--capacity-ownerref-level=-1", "--capacity-poll-interval=1s")...)
		s := newSpace(ctx)
		s.apply(ctx, claimOf("data", "counted-waiting", "3Gi", "")+podWith("user", "data"))
		Eventually(s.events(ctx, "user")).Should(ContainElement(And(HavePrefix("FailedScheduling: "), ContainSubstring("node(s) did not have enough free storage"))))
		c.backend.SetCapacity(4 << 30)
		s.await(ctx, "user", beReady())
		volume := s.awaitClaim(ctx, "data", beBound()).Spec.VolumeName
		affinity := run(ctx, "get", "pv", volume, "-o=jsonpath={.spec.nodeAffinity.required}")
		var required corev1.NodeSelector
		Expect(json.Unmarshal([]byte(affinity), &required)).To(Succeed())
		Expect(required.NodeSelectorTerms).To(ConsistOf(HaveField("MatchExpressions", ConsistOf(And(HaveField("Key", "counted.csi.example/node"), HaveField("Values", ConsistOf(nodeName())))))))
	})
})
