package localpathprovisioner

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/localpath"
)

func TestProvision(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim, *storagev1.StorageClass, *corev1.Node)
		want   string
	}{
		{"a directory of the node", nil, ""},
		{"several nodes cannot write to it", func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteMany)
		}, "unsupported access mode"},
		{"it is no device", func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
		}, "unsupported volumeMode Block"},
		{"it has no labels to select", func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.Selector = &metav1.LabelSelector{}
		}, "claim.spec.selector is not supported"},
		{"it is empty", func(c *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, _ *corev1.Node) {
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, "claim.spec.dataSource is not supported"},
		{"it is not mounted", func(_ *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, _ *corev1.Node) {
			class.MountOptions = []string{"noatime"}
		}, "mountOptions and parameters are not supported"},
		{"a kubelet has no directory for volumes", func(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, n *corev1.Node) {
			n.Annotations = nil
		}, `node "n" has no annotation svc.dev/local-volumes`},
		{"a relative path is none", func(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, n *corev1.Node) {
			n.Annotations[localpath.DirectoryAnnotation] = "volumes"
		}, `"volumes" is not an absolute path`},
		{"the affinity needs a host name", func(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, n *corev1.Node) {
			n.Labels = nil
		}, `node "n" has no label kubernetes.io/hostname`},
		{"the node's name is the value of a label", func(_ *corev1.PersistentVolumeClaim, _ *storagev1.StorageClass, n *corev1.Node) {
			n.Name = strings.Repeat("n", 64)
		}, "cannot be the value of a label"},
	} {
		t.Run(test.name, func(t *testing.T) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{UID: "1"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}
			class := classOf("local-path", true)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: map[string]string{corev1.LabelHostname: "host"}, Annotations: map[string]string{localpath.DirectoryAnnotation: "/data"},
			}}
			if test.change != nil {
				test.change(claim, class, node)
			}
			pv, err := provision(claim, class, node)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got error %v, want %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if pv.Name != "pvc-1" || pv.Spec.Local.Path != "/data/pvc-1" || !localpath.Made(pv) || pv.Labels[localpath.NodeLabel] != "n" ||
				pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] != "host" || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
				t.Errorf("got %v", pv)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolume)
		want   action
	}{
		{"a bound volume is kept", func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }, keep},
		{"a released one is deleted", nil, remove},
		{"unless it is to be retained", func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, keep},
		{"its node's agent removes the finalizer, if there is a node", func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = &metav1.Time{} }, abandon},
		{"after its protection has ended", func(pv *corev1.PersistentVolume) {
			pv.DeletionTimestamp, pv.Finalizers = &metav1.Time{}, append(pv.Finalizers, "kubernetes.io/pv-protection")
		}, keep},
	} {
		t.Run(test.name, func(t *testing.T) {
			pv := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Finalizers: []string{localpath.Finalizer}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete},
				Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeReleased},
			}
			if test.change != nil {
				test.change(pv)
			}
			if got := decide(pv); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
