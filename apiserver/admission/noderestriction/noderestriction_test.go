package noderestriction

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name + "-uid")}
}

func pod(name, node string, annotations map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: meta("ns", name), Spec: corev1.PodSpec{NodeName: node}}
	p.Annotations = annotations
	return p
}

func sliceOf(node string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{NodeName: &node}}
}

func tokenFor(kind, name, uid string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)},
	}}
}

// mirrorPod returns a mirror pod that node a may create, with a change.
func mirrorPod(change func(*corev1.Pod)) *corev1.Pod {
	made := pod("m", "a", map[string]string{corev1.MirrorPodAnnotationKey: "x"})
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "a-uid", Controller: ptr.To(true)}}
	if change != nil {
		change(made)
	}
	return made
}

// decide runs both phases of the plugin on a request.
func decide(t *testing.T, p *plugin, a admission.Attributes) error {
	t.Helper()
	if err := p.Admit(t.Context(), a, nil); err != nil {
		return err
	}
	return p.Validate(t.Context(), a, nil)
}

func TestNodesActOnlyOnTheirOwnObjects(t *testing.T) {
	mine, theirs, unbound := pod("mine", "a", nil), pod("theirs", "b", nil), pod("new", "", nil)
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		client: fake.NewClientset(mine, theirs, &corev1.Node{ObjectMeta: meta("", "a")}), authorizer: authorizerfactory.NewAlwaysDenyAuthorizer()}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	mirrored := map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	older := theirs.DeepCopy()
	older.UID = "older"
	earlier := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("earlier")}
	const no, yes, none = "no", "yes", "none"
	for _, test := range []struct {
		rule          string
		operation     admission.Operation
		name, sub     string
		object, old   runtime.Object
		deleteOptions *metav1.DeleteOptions
		want          string
	}{
		{rule: "its Node", operation: admission.Create, object: &corev1.Node{ObjectMeta: meta("", "a")}, want: yes},
		{rule: "another Node", operation: admission.Create, object: &corev1.Node{ObjectMeta: meta("", "b")}, want: no},
		{rule: "another CSINode", operation: admission.Create, object: &storagev1.CSINode{ObjectMeta: meta("", "b")}, want: no},
		{rule: "its lease", operation: admission.Create, object: &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", "a")}, want: yes},
		{rule: "another node's lease", operation: admission.Create, object: &coordinationv1.Lease{ObjectMeta: meta("kube-node-lease", "b")}, want: no},
		{rule: "a lease of a leader election", operation: admission.Update, old: &coordinationv1.Lease{ObjectMeta: meta("kube-system", "a")}, want: no},
		{rule: "a mirror pod", operation: admission.Create, object: mirrorPod(nil), want: yes},
		{rule: "a mirror pod on another node", operation: admission.Create, object: pod("m", "b", mirrored), want: no},
		{rule: "any pod", operation: admission.Create, object: pod("m", "a", nil), want: no},
		{rule: "the status of a pod of its own", operation: admission.Update, sub: "status", object: mine, old: mine, want: yes},
		{rule: "the status of another node's pod", operation: admission.Update, sub: "status", object: theirs, old: theirs, want: no},
		{rule: "the status of an unbound pod", operation: admission.Update, sub: "status", object: unbound, old: unbound, want: no},
		{rule: "the status of an earlier pod of the name", operation: admission.Update, sub: "status", object: older, old: theirs, want: yes}, // a conflict
		{rule: "a pod of its own", operation: admission.Delete, old: mine, deleteOptions: &metav1.DeleteOptions{}, want: yes},
		{rule: "another node's pod", operation: admission.Delete, old: theirs, deleteOptions: &metav1.DeleteOptions{}, want: no},
		{rule: "an earlier pod of the name", operation: admission.Delete, old: theirs, deleteOptions: &earlier, want: yes}, // a conflict
		{rule: "the eviction of a pod of its own", operation: admission.Create, name: "mine", sub: "eviction", object: &policyv1.Eviction{}, want: yes},
		{rule: "the eviction of another node's pod", operation: admission.Create, name: "theirs", sub: "eviction", object: &policyv1.Eviction{}, want: no},
		{rule: "a token of its pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", "mine-uid"), want: yes},
		{rule: "a token of an earlier pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", "x"), want: no},
		{rule: "a token of a pod of any UID", operation: admission.Create, sub: "token", object: tokenFor("Pod", "mine", ""), want: no},
		{rule: "a token of another node's pod", operation: admission.Create, sub: "token", object: tokenFor("Pod", "theirs", "theirs-uid"), want: no},
		{rule: "a token of a pod that does not exist", operation: admission.Create, sub: "token", object: tokenFor("Pod", "none", "none-uid"), want: none},
		{rule: "a token of a secret", operation: admission.Create, sub: "token", object: tokenFor("Secret", "mine", "mine-uid"), want: no},
		{rule: "a token without a bound object", operation: admission.Create, sub: "token", object: &authenticationv1.TokenRequest{}, want: no},
		{rule: "a slice of its devices", operation: admission.Create, object: sliceOf("a"), want: yes},
		{rule: "a slice of another node's devices", operation: admission.Create, object: sliceOf("b"), want: no},
		{rule: "a slice of no node", operation: admission.Create, object: &resourcev1.ResourceSlice{}, want: no},
		{rule: "a slice of its devices", operation: admission.Update, object: sliceOf("a"), old: sliceOf("a"), want: yes},
		{rule: "a slice of another node's devices", operation: admission.Update, object: sliceOf("b"), old: sliceOf("b"), want: no},
		{rule: "a slice of its devices", operation: admission.Delete, old: sliceOf("a"), want: yes},
		{rule: "a slice of another node's devices", operation: admission.Delete, old: sliceOf("b"), want: no},
		{rule: "an event", operation: admission.Create, object: &corev1.Event{ObjectMeta: meta("ns", "e")}, want: yes},
	} {
		t.Run(string(test.operation)+" "+test.rule, func(t *testing.T) {
			admit := func(who user.Info) error {
				var options runtime.Object
				if test.deleteOptions != nil {
					options = test.deleteOptions
				}
				return decide(t, p, admission.NewAttributesRecord(test.object, test.old, schema.GroupVersionKind{}, "ns", test.name,
					schema.GroupVersionResource{}, test.sub, test.operation, options, false, who))
			}
			for _, who := range []*user.DefaultInfo{
				{Name: "system:node:a", Groups: []string{user.NodesGroup}}, {Name: "svc.dev:node:a", Groups: []string{"svc.dev:nodes"}}, // of a fleet
			} {
				err := admit(who)
				if test.want == yes && err != nil || test.want == no && !apierrors.IsForbidden(err) || test.want == none && !apierrors.IsNotFound(err) {
					t.Errorf("%s: want %s: %v", who.Name, test.want, err)
				}
			}
			for _, who := range []*user.DefaultInfo{{Name: "system:node:a"}, {Name: "svc.dev:node:a", Groups: []string{"example.org:nodes"}}} {
				if err := admit(who); err != nil {
					t.Errorf("%s outside the group of nodes: %v", who.Name, err)
				}
			}
			if err := admit(&user.DefaultInfo{Name: "system:node:", Groups: []string{user.NodesGroup}}); !apierrors.IsForbidden(err) {
				t.Errorf("a node without a name: %v", err)
			}
		})
	}
}

// admit returns why node a may not change an object, or "".
func admit(t *testing.T, operation admission.Operation, subresource string, object, old runtime.Object) string {
	t.Helper()
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete),
		client: fake.NewClientset(&corev1.Node{ObjectMeta: meta("", "a")}), authorizer: authorizerfactory.NewAlwaysDenyAuthorizer()}
	err := decide(t, p, admission.NewAttributesRecord(object, old, schema.GroupVersionKind{}, "ns", "x", schema.GroupVersionResource{Resource: "x"},
		subresource, operation, nil, false, &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}}))
	if err == nil {
		return ""
	}
	_, reason, _ := strings.Cut(err.Error(), "is forbidden: ")
	return reason
}

func TestNodesAreRefusedWhatNoRuleAllows(t *testing.T) {
	mine := pod("mine", "a", nil)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c")}
	otherGroup := tokenFor("Pod", "mine", "mine-uid")
	otherGroup.Spec.BoundObjectRef.APIVersion = "example.com/v1"
	const notStatus = "may only update PVC status"
	for _, test := range []struct {
		rule, sub   string
		operation   admission.Operation
		object, old runtime.Object
		want        string
	}{
		{"a pod", "", admission.Update, mine, mine, `unexpected operation "UPDATE", node "a" can only create and delete mirror pods`},
		{"the status of a pod", "status", admission.Delete, nil, mine, `unexpected operation "DELETE"`},
		{"the resources of a pod", "resize", admission.Update, mine, mine, `unexpected pod subresource "resize", only 'status' and 'eviction' are allowed`},
		{"the debug containers of a pod", "ephemeralcontainers", admission.Update, mine, mine, `unexpected pod subresource "ephemeralcontainers", only 'status' and 'eviction' are allowed`},
		{"the binding of a pod", "binding", admission.Create, &corev1.Binding{ObjectMeta: meta("ns", "new")}, nil, `unexpected pod subresource "binding", only 'status' and 'eviction' are allowed`},
		{"a binding", "", admission.Create, &corev1.Binding{ObjectMeta: meta("ns", "new")}, nil, `unexpected pod subresource "binding", only 'status' and 'eviction' are allowed`},
		{"a claim", "", admission.Create, claim, nil, notStatus},
		{"a claim", "", admission.Update, claim, claim, notStatus},
		{"a claim", "", admission.Delete, nil, claim, notStatus},
		{"the status of a claim", "status", admission.Update, claim, claim, ""},
		{"a token of a pod of another API group", "token", admission.Create, otherGroup, nil, "node requested token not bound to a pod"},
	} {
		if got := admit(t, test.operation, test.sub, test.object, test.old); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.operation, test.rule, got, test.want)
		}
	}
}

// withSource gives a pod a volume with one source.
func withSource(p *corev1.Pod, source corev1.VolumeProjection) {
	p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}}}
}

func TestAMirrorPodIsOwnedByItsNodeAndRefersToNothing(t *testing.T) {
	for _, test := range []struct {
		rule   string
		change func(*corev1.Pod)
		want   string
	}{
		{"none", func(p *corev1.Pod) { p.OwnerReferences = nil }, `node "a" can only create pods with an owner reference set to itself`},
		{"another kind", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Pod" }, `node "a" can only create pods with an owner reference set to itself`},
		{"another node", func(p *corev1.Pod) { p.OwnerReferences[0].Name = "b" }, `node "a" can only create pods with an owner reference set to itself`},
		{"no controller", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, `node "a" can only create pods with a controller owner reference set to itself`},
		{"blocking", func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = ptr.To(true) }, `node "a" must not set blockOwnerDeletion on an owner reference`},
		{"an earlier node", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old" }, `node a UID mismatch: expected old got a-uid`},
		{"a service account", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "admin" }, `node "a" can not create pods that reference a service account`},
		{"a secret", func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "s"}} }, `node "a" can not create pods that reference secrets`},
		{"a config map", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}}}}
		}, `node "a" can not create pods that reference configmaps`},
		{"a claim", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		}, `node "a" can not create pods that reference persistentvolumeclaims`},
		{"a trust bundle", func(p *corev1.Pod) {
			withSource(p, corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}})
		},
			`node "a" can not create pods that reference clustertrustbundles`},
		{"a token", func(p *corev1.Pod) {
			withSource(p, corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}})
		},
			`node "a" can not create pods that reference serviceaccounts (via projected volumes)`},
		{"a driver", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}}}
		}, `node "a" can not create pods that reference csidrivers (via CSI volumes)`},
		{"endpoints", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Glusterfs: &corev1.GlusterfsVolumeSource{EndpointsName: "e"}}}}
		}, `node "a" can not create pods that reference endpoints (via glusterFS volumes)`},
		{"fields of its own", func(p *corev1.Pod) {
			withSource(p, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{}})
		}, ""},
		{"a resource claim", func(p *corev1.Pod) {
			p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
		}, `node "a" can not create pods that reference resourceclaims`},
		{"a certificate", func(p *corev1.Pod) { withCertificate(p, "example.com/signer") }, `node "a" can not create pods that reference podcertificates`},
		{"nothing", nil, ""},
	} {
		if got := admit(t, admission.Create, "", mirrorPod(test.change), nil); got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
}

func TestANodeRemovesOnlyTheFinalizerOfItsVolumes(t *testing.T) {
	volume := func(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{ObjectMeta: meta("", "pv"), Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/volumes/pv"}},
		}}
		pv.Labels = map[string]string{"svc.dev/local-volume-node": "a"}
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "svc.dev/local-path"}
		pv.Finalizers, pv.DeletionTimestamp = []string{"svc.dev/local-path"}, &metav1.Time{}
		if change != nil {
			change(pv)
		}
		return pv
	}
	without := func(pv *corev1.PersistentVolume) { pv.Finalizers = nil }
	const others = `node "a" may only change volumes of the provisioner svc.dev/local-path on this node that are being deleted`
	for _, test := range []struct {
		rule        string
		old, change func(*corev1.PersistentVolume)
		want        string
	}{
		{"the finalizer", nil, without, ""},
		{"more", nil, func(pv *corev1.PersistentVolume) { without(pv); pv.Spec.Local.Path = "/etc" }, `node "a" may only remove the finalizer svc.dev/local-path of a volume`},
		{"one of another node", func(pv *corev1.PersistentVolume) { pv.Labels["svc.dev/local-volume-node"] = "b" }, without, others},
		{"one that is bound", func(pv *corev1.PersistentVolume) {
			pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-protection")
		}, without, others},
		{"one that is not being deleted", func(pv *corev1.PersistentVolume) { pv.DeletionTimestamp = nil }, without, others},
	} {
		old := volume(test.old)
		changed := old.DeepCopy()
		test.change(changed)
		if got := admit(t, admission.Update, "", changed, old); got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
}

func TestANodeDoesNotDrawPodsToItself(t *testing.T) {
	labelled := func(keys ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: meta("", "a")}
		n.Labels = map[string]string{"kubernetes.io/os": "linux", "zone": "1"}
		for _, key := range keys {
			n.Labels[key] = "x"
		}
		return n
	}
	tainted := labelled()
	tainted.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	other := labelled()
	other.Name = "b"
	bare := &corev1.Node{ObjectMeta: meta("", "a")}
	owned := labelled()
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	ranged := labelled()
	ranged.Spec.PodCIDR, ranged.Spec.PodCIDRs = "203.0.113.0/24", []string{"203.0.113.0/24"}
	for _, test := range []struct {
		rule        string
		object, old *corev1.Node
		want        string
	}{
		{"its own labels", labelled("any", "kubelet.kubernetes.io/any", "node.kubernetes.io/any"), nil, ""},
		{"labels of an administrator", labelled("node-restriction.kubernetes.io/a", "x.node-restriction.kubernetes.io/b"), nil,
			`node "a" is not allowed to set the following labels: node-restriction.kubernetes.io/a, x.node-restriction.kubernetes.io/b`},
		{"a role", labelled("node-role.kubernetes.io/control-plane"), nil, `node "a" is not allowed to set the following labels: node-role.kubernetes.io/control-plane`},
		{"taints at the registration", tainted, nil, ""},
		{"a change of its own labels", labelled("any", "topology.kubernetes.io/zone"), labelled(), ""},
		{"a further label", labelled("k8s.io/any"), labelled(), "is not allowed to modify labels: k8s.io/any"},
		{"a label less", labelled(), labelled("node-restriction.kubernetes.io/a"), "is not allowed to modify labels: node-restriction.kubernetes.io/a"},
		{"a label that stays", labelled("node-restriction.kubernetes.io/a", "any"), labelled("node-restriction.kubernetes.io/a"), ""},
		{"a first label", labelled("k8s.io/any"), bare, "is not allowed to modify labels: k8s.io/any"},
		{"an address range at the registration", ranged, nil, `node "a" is not allowed to set podCIDRs`},
		{"an address range", ranged, labelled(), `node "a" is not allowed to modify podCIDRs`},
		{"the address range that it has", ranged, ranged, ""},
		{"an owner at the registration", owned, nil, `node "a" is not allowed to set ownerReferences`},
		{"an owner", owned, labelled(), `node "a" is not allowed to modify ownerReferences`},
		{"an owner less", labelled(), owned, `node "a" is not allowed to modify ownerReferences`},
		{"an owner that stays", owned, owned, ""},
		{"a taint less", labelled(), tainted, `node "a" is not allowed to modify taints`},
		{"another node", other, other, `node "a" is not allowed to modify node "b"`},
	} {
		operation, old := admission.Create, runtime.Object(nil)
		if test.old != nil {
			operation, old = admission.Update, test.old
		}
		if got := admit(t, operation, "", test.object, old); got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
}

func TestANodeChangesOnlyTheStatusOfPodsAndClaims(t *testing.T) {
	relabelled := pod("mine", "a", nil)
	relabelled.Labels = map[string]string{"app": "web"}
	if got, want := admit(t, admission.Update, "status", relabelled, pod("mine", "a", nil)), `node "a" cannot update labels through pod status`; got != want {
		t.Errorf("labels of a pod: %q, want %q", got, want)
	}
	claimed := pod("mine", "a", nil)
	claimed.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu"}}
	if got, want := admit(t, admission.Update, "status", claimed, pod("mine", "a", nil)), `node "a" cannot update resource claim statuses`; got != want {
		t.Errorf("resource claims of a pod: %q, want %q", got, want)
	}
	extended := pod("mine", "a", nil)
	extended.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "gpu"}
	if got, want := admit(t, admission.Update, "status", extended, pod("mine", "a", nil)), `node "a" cannot update extended resource claim status`; got != want {
		t.Errorf("the claim of extended resources of a pod: %q, want %q", got, want)
	}
	allocated := pod("mine", "a", nil)
	allocated.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "gpu"}}
	for _, change := range [][2]*corev1.Pod{{pod("mine", "a", nil), allocated}, {allocated, pod("mine", "a", nil)}} {
		if got, want := admit(t, admission.Update, "status", change[1], change[0]), `node "a" cannot update node allocatable resource claim statuses`; got != want {
			t.Errorf("node allocatable resource claims of a pod: %q, want %q", got, want)
		}
	}
	if got := admit(t, admission.Update, "status", allocated.DeepCopy(), allocated); got != "" {
		t.Errorf("unchanged node allocatable resource claims of a pod: %q", got)
	}
	old := &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c")}
	resized := old.DeepCopy()
	resized.ResourceVersion = "2"
	resized.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if got := admit(t, admission.Update, "status", resized, old); got != "" {
		t.Errorf("capacity of a claim: %q", got)
	}
	resized.Finalizers = []string{"example.com/mine"}
	if got, want := admit(t, admission.Update, "status", resized, old), `node "a" is not allowed to update fields other than status.capacity and status.conditions`; got != want {
		t.Errorf("finalizers of a claim: %q, want %q", got, want)
	}
}
