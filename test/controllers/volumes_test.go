package controllers

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/apis/localpath"
)

var _ = Describe("persistent volumes", func() {
	var ns, class string
	BeforeEach(func(ctx SpecContext) {
		ns = newNamespace(ctx)
		class = fmt.Sprintf("class-%d", time.Now().UnixNano())
	})
	in := func(ctx context.Context, args ...string) string {
		GinkgoHelper()
		return run(ctx, append([]string{"-n", ns}, args...)...)
	}
	jsonpath := func(ctx context.Context, object, path string) func() string {
		return func() string { return in(ctx, "get", object, "-o", "jsonpath="+path) }
	}
	single, shared := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	claim := func(ctx context.Context, name, size string, modes ...corev1.PersistentVolumeAccessMode) {
		GinkgoHelper()
		if modes == nil {
			modes = single
		}
		create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}})
	}
	volume := func(ctx context.Context, name, size string, change func(*corev1.PersistentVolume)) string {
		GinkgoHelper()
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: class + "-" + name}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			AccessModes: single, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		}}
		if change != nil {
			change(pv)
		}
		create(ctx, pv)
		DeferCleanup(func(ctx SpecContext) { Expect(ctrlclient.IgnoreNotFound(client.Delete(ctx, pv))).To(Succeed()) })
		return pv.Name
	}

	It("are bound to claims of their class, the smallest that fits, and reserved ones to their claim", func(ctx SpecContext) {
		large, fits := volume(ctx, "large", "20Gi", nil), volume(ctx, "fits", "5Gi", nil)
		reserved := volume(ctx, "reserved", "1Gi", func(pv *corev1.PersistentVolume) {
			pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "mine"}
		})
		for _, pv := range []string{large, fits, reserved} {
			Eventually(jsonpath(ctx, "pv/"+pv, "{.status.phase}")).Should(Equal("Available"))
		}
		// The controller knows all of them when it binds one that became available later.
		volume(ctx, "later", "1Gi", func(pv *corev1.PersistentVolume) { pv.Spec.AccessModes = shared })
		claim(ctx, "later", "1Gi", shared...)
		Eventually(jsonpath(ctx, "pvc/later", "{.status.phase}")).Should(Equal("Bound"))
		claim(ctx, "data", "2Gi")
		claim(ctx, "mine", "1Gi")
		Eventually(jsonpath(ctx, "pvc/data", "{.status.phase} {.spec.volumeName} {.status.capacity.storage} {.status.accessModes}")).
			Should(Equal("Bound " + fits + ` 5Gi ["ReadWriteOnce"]`))
		Eventually(jsonpath(ctx, "pvc/mine", "{.status.phase} {.spec.volumeName}")).Should(Equal("Bound " + reserved))
		Eventually(jsonpath(ctx, "pv/"+fits, "{.status.phase} {.spec.claimRef.name}")).Should(Equal("Bound data"))
		Expect(jsonpath(ctx, "pv/"+large, "{.status.phase}")()).To(Equal("Available"))
	})

	It("are released with their claim, and not recycled", func(ctx SpecContext) {
		pv := volume(ctx, "old", "1Gi", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
		})
		claim(ctx, "data", "1Gi")
		Eventually(jsonpath(ctx, "pvc/data", "{.status.phase}")).Should(Equal("Bound"))
		in(ctx, "delete", "pvc", "data", "--timeout=5m")
		Eventually(jsonpath(ctx, "pv/"+pv, "{.status.phase}")).Should(Equal("Failed"))
		Eventually(func() string { return in(ctx, "describe", "pv", pv) }).Should(MatchRegexp(`Warning +VolumeFailedRecycle +\S+ +persistentvolume-controller +No recycler found for the volume`))
		claim(ctx, "data", "1Gi")
		Eventually(func() string { return in(ctx, "describe", "pvc", "data") }).Should(ContainSubstring(`storageclass.storage.k8s.io "` + class + `" not found`))
		Expect(jsonpath(ctx, "pvc/data", "{.status.phase}")()).To(Equal("Pending"))
	})

	It("are directories of the node of the first pod, with the provisioner svc.dev/local-path, also if the manager is killed", func(ctx SpecContext) {
		create(ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: localpath.Provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		})
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.Delete(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}})).To(Succeed())
		})
		node, other := "disk-"+class, "other-"+class
		addNode(ctx, node, func(n *corev1.Node) {
			n.Annotations = map[string]string{localpath.DirectoryAnnotation: "/data/volumes"}
		})
		addNode(ctx, other, nil)
		claim(ctx, "data", "1Gi")
		Eventually(func() string { return in(ctx, "describe", "pvc", "data") }).Should(MatchRegexp(`Normal +WaitForFirstConsumer +\S+ +persistentvolume-controller `))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers:   []corev1.Container{{Name: "web", Image: "web"}},
			Volumes:      []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
		}}
		create(ctx, pod)
		killManager(ctx)
		startManager(ctx)
		Eventually(jsonpath(ctx, "pod/web", "{.status.phase}")).Should(Equal("Running"))
		pv := jsonpath(ctx, "pvc/data", "{.spec.volumeName}")()
		Expect(jsonpath(ctx, "pv/"+pv, "{.spec.local.path} {.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values}")()).
			To(Equal(filepath.Join("/data/volumes", pv) + ` ["` + node + `"]`))

		By("a pod that uses it can be on no other node")
		later := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}, Spec: *pod.Spec.DeepCopy()}
		later.Spec.NodeName, later.Spec.NodeSelector = "", map[string]string{corev1.LabelHostname: other}
		create(ctx, later)
		Eventually(func() string { return in(ctx, "describe", "pod", "later") }).Should(ContainSubstring("didn't match PersistentVolume's node affinity"))

		By("it is deleted with its claim, once the node has removed the directory or has gone")
		in(ctx, "delete", "pod", "web", "later", "--timeout=5m")
		in(ctx, "delete", "pvc", "data", "--timeout=5m")
		Eventually(jsonpath(ctx, "pv/"+pv, "{.metadata.finalizers}")).Should(Equal(`["` + localpath.Finalizer + `"]`))
		Expect(jsonpath(ctx, "pv/"+pv, "{.metadata.deletionTimestamp}")()).NotTo(BeEmpty())
		in(ctx, "delete", "node", node)
		Eventually(func() string { return in(ctx, "get", "pv", pv, "--ignore-not-found") }).Should(BeEmpty())
	})

	It("of a driver are attached to the node of their pod, and detached when the node has released them", func(ctx SpecContext) {
		node := "attach-" + class
		addNode(ctx, node, func(n *corev1.Node) {
			n.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
		})
		pv := volume(ctx, "disk", "1Gi", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: class}}
		})
		claim(ctx, "data", "1Gi")
		spec := corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "web", Image: "web"}},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
		}
		create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: spec})
		attachments := func() []storagev1.VolumeAttachment {
			var list storagev1.VolumeAttachmentList
			Expect(client.List(ctx, &list)).To(Succeed())
			return slices.DeleteFunc(list.Items, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName != node })
		}
		Eventually(attachments).Should(ConsistOf(HaveField("Spec", storagev1.VolumeAttachmentSpec{
			Attacher: "example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		})))
		By("the driver attaches it, and the agent mounts it")
		Eventually(ctx, func() error { // the controller may write it in between
			attachment := attachments()[0]
			attachment.Status.Attached = true
			return client.Status().Update(ctx, &attachment)
		}).Should(Succeed())
		unique := "kubernetes.io/csi/example.com^" + class
		Eventually(jsonpath(ctx, "node/"+node, "{.status.volumesAttached[*].name}")).Should(Equal(unique))
		Eventually(func() string { return in(ctx, "describe", "pod", "web") }).Should(MatchRegexp(`Normal +SuccessfulAttachVolume +\S+ +attachdetach-controller `))
		in(ctx, "patch", "node", node, "--subresource=status", `--patch={"status":{"volumesInUse":["`+unique+`"]}}`)
		in(ctx, "delete", "pod", "web", "--timeout=5m")
		Consistently(attachments).Should(HaveLen(1))
		By("the agent unmounts it")
		in(ctx, "patch", "node", node, "--subresource=status", "--type=merge", `--patch={"status":{"volumesInUse":null}}`)
		Eventually(attachments).Should(BeEmpty())
		Expect(jsonpath(ctx, "node/"+node, "{.status.volumesAttached}")()).To(BeEmpty())

		By("a pod whose Node object is deleted keeps its volume, as it may still run")
		create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later"}, Spec: spec})
		Eventually(attachments).Should(HaveLen(1))
		in(ctx, "delete", "node", node)
		Consistently(attachments).Should(HaveLen(1))
		Expect(client.Delete(ctx, &attachments()[0])).To(Succeed())
	})

	It("are claimed for generic ephemeral volumes, expanded when a claim grows, and deleted with the pod", func(ctx SpecContext) {
		create(ctx, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: localpath.Provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: new(true),
		})
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.Delete(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}})).To(Succeed())
		})
		node := "disk-" + class
		addNode(ctx, node, func(n *corev1.Node) {
			n.Annotations = map[string]string{localpath.DirectoryAnnotation: "/data/volumes"}
		})
		create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers:   []corev1.Container{{Name: "web", Image: "web"}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}}}}},
		}})
		Eventually(jsonpath(ctx, "pod/web", "{.status.phase}")).Should(Equal("Running"))
		Expect(in(ctx, "get", "pvc", "-l", "app=web", "-o", "name")).To(Equal("persistentvolumeclaim/web-scratch\n"))
		in(ctx, "patch", "pvc", "web-scratch", `--patch={"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
		Eventually(jsonpath(ctx, "pvc/web-scratch", "{.status.capacity.storage}")).Should(Equal("3Gi"))
		pv := jsonpath(ctx, "pvc/web-scratch", "{.spec.volumeName}")()
		Expect(jsonpath(ctx, "pv/"+pv, "{.spec.capacity.storage}")()).To(Equal("3Gi"))
		in(ctx, "delete", "pod", "web", "--timeout=5m")
		Eventually(func() string { return in(ctx, "get", "pvc") }).Should(BeEmpty())
		in(ctx, "delete", "node", node)
		Eventually(func() string { return in(ctx, "get", "pv", pv, "--ignore-not-found") }).Should(BeEmpty())
	})
})
