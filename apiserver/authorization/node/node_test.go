package node

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func decode[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// newAuthorizer returns an authorizer whose graph has the objects. The API has the
// pods in live.
func newAuthorizer(t testing.TB, objects []any, live ...apiruntime.Object) *Authorizer {
	t.Helper()
	client := fake.NewClientset(certificateRequest("mine", "n1"), certificateRequest("theirs", "n2"),
		slice("mine", ptr.To("n1")), slice("theirs", ptr.To("n2")), slice("shared", nil))
	// The fake client ignores field selectors.
	client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, apiruntime.Object, error) {
		list := &corev1.PodList{}
		for _, o := range live {
			pod := o.(*corev1.Pod)
			if action.(clienttesting.ListAction).GetListRestrictions().Fields.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName}) {
				list.Items = append(list.Items, *pod)
			}
		}
		return true, list, nil
	})
	for _, o := range live {
		if err := client.Tracker().Add(o); err != nil {
			t.Fatal(err)
		}
	}
	a := New(authorizerfactory.NewAlwaysAllowAuthorizer(), Features{BySelectors: true}) // allows what no check decides
	a.Follow(client)
	close(a.filled)
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Pod:
			a.graph.setPod(o)
		case *corev1.PersistentVolume:
			a.graph.setVolume(o)
		case *storagev1.VolumeAttachment:
			a.graph.setAttachment(o)
		}
	}
	return a
}

const (
	ownPod = `
metadata: {name: mine, namespace: shop}
spec:
  nodeName: n1
  serviceAccountName: account
  imagePullSecrets: [{name: pull}]
  containers: [{name: c, envFrom: [{configMapRef: {name: settings}}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
  resourceClaims: [{name: gpu, resourceClaimName: gpus}, {name: net, resourceClaimTemplateName: nets}]
status:
  resourceClaimStatuses: [{name: net, resourceClaimName: mine-net}]
  extendedResourceClaimStatus: {resourceClaimName: mine-extended}`
	otherPod = `
metadata: {name: theirs, namespace: shop}
spec: {nodeName: n2, serviceAccountName: other, imagePullSecrets: [{name: others}], containers: []}`
	mirrorPod = `
metadata: {name: static, namespace: shop, annotations: {kubernetes.io/config.mirror: x}}
spec: {nodeName: n1, imagePullSecrets: [{name: mirrored}], containers: []}`
	latePod = `
metadata: {name: late, namespace: shop}
spec: {nodeName: n1, imagePullSecrets: [{name: late}], containers: []}`
	volumeOfClaim = `
metadata: {name: pv}
spec: {claimRef: {namespace: shop, name: data}, csi: {driver: d, volumeHandle: h, nodeStageSecretRef: {namespace: drivers, name: stage}, controllerPublishSecretRef: {namespace: drivers, name: controller}}}`
	volumeOfOther = `
metadata: {name: pv2}
spec: {claimRef: {namespace: shop, name: else}, csi: {driver: d, volumeHandle: h, nodeStageSecretRef: {namespace: drivers, name: stage2}}}`
	ownDisk = `
metadata: {name: disk, labels: {svc.dev/local-volume-node: n1}, annotations: {pv.kubernetes.io/provisioned-by: svc.dev/local-path}}
spec: {local: {path: /volumes/disk}}`
	otherDisk = `
metadata: {name: disk2, labels: {svc.dev/local-volume-node: n2}, annotations: {pv.kubernetes.io/provisioned-by: svc.dev/local-path}}
spec: {local: {path: /volumes/disk2}}`
	attached = `
metadata: {name: at}
spec: {nodeName: n1, attacher: a, source: {}}`
	attachedElsewhere = `
metadata: {name: at2}
spec: {nodeName: n2, attacher: a, source: {}}`
)

func TestANodeReadsWhatItsPodsReferTo(t *testing.T) {
	graph := []any{
		decode[corev1.Pod](t, ownPod), decode[corev1.Pod](t, otherPod), decode[corev1.Pod](t, mirrorPod),
		decode[corev1.PersistentVolume](t, volumeOfClaim), decode[corev1.PersistentVolume](t, volumeOfOther),
		decode[corev1.PersistentVolume](t, ownDisk), decode[corev1.PersistentVolume](t, otherDisk),
		decode[storagev1.VolumeAttachment](t, attached), decode[storagev1.VolumeAttachment](t, attachedElsewhere),
	}
	a := newAuthorizer(t, graph, decode[corev1.Pod](t, latePod), decode[corev1.Pod](t, otherPod), decode[corev1.Pod](t, mirrorPod))
	const unrelated = "no relationship found between node 'n1' and this object"
	for _, test := range []struct{ rule, verb, group, resource, namespace, name, refusal string }{
		{"a secret of its pod", "get", "", "secrets", "shop", "pull", ""},
		{"a watch of it", "watch", "", "secrets", "shop", "pull", ""},
		{"a secret of another node's pod", "get", "", "secrets", "shop", "others", unrelated},
		{"a secret of the name in another namespace", "get", "", "secrets", "bank", "pull", unrelated},
		{"a config map of the name of a secret", "get", "", "configmaps", "shop", "pull", unrelated},
		{"a secret of a mirror pod", "get", "", "secrets", "shop", "mirrored", unrelated},
		{"a secret of a pod that the graph does not have yet", "get", "", "secrets", "shop", "late", ""},
		{"all secrets", "list", "", "secrets", "shop", "", "No Object name found"},
		{"secrets of all namespaces", "list", "", "secrets", "", "", "can only read namespaced object of this type"},
		{"the deletion of a secret", "delete", "", "secrets", "shop", "pull", "can only read resources of this type"},
		{"a config map of its pod", "get", "", "configmaps", "shop", "settings", ""},
		{"a resource claim of its pod", "get", "resource.k8s.io", "resourceclaims", "shop", "gpus", ""},
		{"one that was made for it", "get", "resource.k8s.io", "resourceclaims", "shop", "mine-net", ""},
		{"the one for its extended resources", "get", "resource.k8s.io", "resourceclaims", "shop", "mine-extended", ""},
		{"another resource claim", "get", "resource.k8s.io", "resourceclaims", "shop", "theirs", unrelated},
		{"a list of resource claims", "list", "resource.k8s.io", "resourceclaims", "shop", "", "can only get individual resources of this type"},
		{"the status of a resource claim", "get", "resource.k8s.io", "resourceclaims/status", "shop", "gpus", "cannot get subresource"},
		{"a claim of its pod", "get", "", "persistentvolumeclaims", "shop", "data", ""},
		{"a list of claims", "list", "", "persistentvolumeclaims", "shop", "", "can only get individual resources of this type"},
		{"the status of a claim of its pod", "patch", "", "persistentvolumeclaims/status", "shop", "data", ""},
		{"the status of another claim", "patch", "", "persistentvolumeclaims/status", "shop", "else", unrelated},
		{"the deletion of a claim's status", "delete", "", "persistentvolumeclaims/status", "shop", "data", "can only update resources of this type"},
		{"the volume of the claim", "get", "", "persistentvolumes", "", "pv", ""},
		{"the volume of another claim", "get", "", "persistentvolumes", "", "pv2", unrelated},
		{"a volume that does not exist", "get", "", "persistentvolumes", "", "none", unrelated},
		{"a directory of its disk that is a volume", "patch", "", "persistentvolumes", "", "disk", ""},
		{"a directory of another node", "patch", "", "persistentvolumes", "", "disk2", unrelated},
		{"the status of a directory of its disk", "patch", "", "persistentvolumes/status", "", "disk", unrelated},
		{"the deletion of a directory of its disk", "delete", "", "persistentvolumes", "", "disk", "can only get individual resources of this type"},
		{"all volumes", "list", "", "persistentvolumes", "", "", "can only list and watch volumes with the label selector svc.dev/local-volume-node=n1"},
		{"the volume's secret for nodes", "get", "", "secrets", "drivers", "stage", ""},
		{"the volume's secret for its controller", "get", "", "secrets", "drivers", "controller", unrelated},
		{"the secret of another volume", "get", "", "secrets", "drivers", "stage2", unrelated},
		{"an attachment to it", "get", "storage.k8s.io", "volumeattachments", "", "at", ""},
		{"an attachment to another node", "get", "storage.k8s.io", "volumeattachments", "", "at2", unrelated},
		{"a token of its pod's account", "create", "", "serviceaccounts/token", "shop", "account", ""},
		{"a token of another account", "create", "", "serviceaccounts/token", "shop", "other", unrelated},
		{"a token without an account", "create", "", "serviceaccounts/token", "shop", "", "can only create tokens for individual service accounts"},
		{"its lease", "update", "coordination.k8s.io", "leases", "kube-node-lease", "n1", ""},
		{"a new lease", "create", "coordination.k8s.io", "leases", "kube-node-lease", "", ""},
		{"another node's lease", "update", "coordination.k8s.io", "leases", "kube-node-lease", "n2", "can only access a node lease with the same name as the requesting node"},
		{"a lease of a leader election", "update", "coordination.k8s.io", "leases", "kube-system", "n1", `can only access leases in the "kube-node-lease" system namespace`},
		{"all leases", "list", "coordination.k8s.io", "leases", "kube-node-lease", "", "can only get, create, update, patch, or delete a node lease"},
		{"its CSINode", "get", "storage.k8s.io", "csinodes", "", "n1", ""},
		{"another node's CSINode", "delete", "storage.k8s.io", "csinodes", "", "n2", "can only access a CSINode with the same name as the requesting node"},
		{"a request for a certificate", "create", "certificates.k8s.io", "podcertificaterequests", "shop", "", ""},
		{"a request of its own", "get", "certificates.k8s.io", "podcertificaterequests", "shop", "mine", ""},
		{"a request of another node", "get", "certificates.k8s.io", "podcertificaterequests", "shop", "theirs", unrelated},
		{"a request that does not exist", "get", "certificates.k8s.io", "podcertificaterequests", "shop", "none", unrelated},
		{"a request without a name", "get", "certificates.k8s.io", "podcertificaterequests", "shop", "", "No Object name found"},
		{"the issue of a certificate", "update", "certificates.k8s.io", "podcertificaterequests/status", "shop", "mine", "nodes may not access the status subresource of PodCertificateRequests"},
		{"all requests for certificates", "list", "certificates.k8s.io", "podcertificaterequests", "", "", "can only list/watch podcertificaterequests with nodeName field selector"},
		{"the deletion of a request", "delete", "certificates.k8s.io", "podcertificaterequests", "shop", "mine", "nodes may not delete podcertificaterequests"},
		{"a slice of devices", "create", "resource.k8s.io", "resourceslices", "", "", ""},
		{"a slice of its devices", "update", "resource.k8s.io", "resourceslices", "", "mine", ""},
		{"a slice of another node's devices", "delete", "resource.k8s.io", "resourceslices", "", "theirs", unrelated},
		{"a slice of no node's devices", "get", "resource.k8s.io", "resourceslices", "", "shared", unrelated},
		{"a slice that does not exist", "get", "resource.k8s.io", "resourceslices", "", "none", unrelated},
		{"all slices of devices", "deletecollection", "resource.k8s.io", "resourceslices", "", "", "can only list/watch/deletecollection resourceslices with nodeName field selector"},
		{"another verb of slices", "bind", "resource.k8s.io", "resourceslices", "", "mine", "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"},
		{"a subresource of slices", "get", "resource.k8s.io", "resourceslices/status", "", "mine", "cannot authorize ResourceSlice subresources"},
		{"trust bundles", "watch", "certificates.k8s.io", "clustertrustbundles", "", "", ""},
		{"what does not depend on pods", "list", "", "services", "", "", ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			decision, reason, err := a.Authorize(t.Context(), request("n1", test.verb, test.group, test.resource, test.namespace, test.name))
			if err != nil || reason != test.refusal || (decision == authorizer.DecisionAllow) != (test.refusal == "") {
				t.Errorf("got %v %q %v, want %q", decision, reason, err, test.refusal)
			}
		})
	}
}

func certificateRequest(name, node string) *certificatesv1.PodCertificateRequest {
	return &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: certificatesv1.PodCertificateRequestSpec{NodeName: types.NodeName(node)},
	}
}

func slice(name string, node *string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{NodeName: node}}
}

func TestANodeWatchesOnlyItsRequestsForCertificatesItsPodsAndItsSlices(t *testing.T) {
	a := newAuthorizer(t, nil)
	for selector, want := range map[string]bool{
		"spec.nodeName=n1": true, "spec.nodeName=n1,spec.podName=x": true, "spec.nodeName=n2": false, "spec.nodeName!=n1": false, "spec.podName=n1": false,
	} {
		for resource, group := range map[string]string{"podcertificaterequests": "certificates.k8s.io", "pods": "", "resourceslices": "resource.k8s.io"} {
			attrs := request("n1", "watch", group, resource, "", "")
			attrs.FieldSelectorRequirements = fields.ParseSelectorOrDie(selector).Requirements()
			if decision, reason, err := a.Authorize(t.Context(), attrs); err != nil || (decision == authorizer.DecisionAllow) != want {
				t.Errorf("%s with %s: %v %q %v", resource, selector, decision, reason, err)
			}
		}
	}
}

func TestANodeWatchesOnlyVolumesOnItsDisk(t *testing.T) {
	a := newAuthorizer(t, nil)
	for selector, want := range map[string]bool{
		"svc.dev/local-volume-node=n1": true, "svc.dev/local-volume-node in (n1),x=y": true,
		"svc.dev/local-volume-node=n2": false, "svc.dev/local-volume-node in (n1,n2)": false, "svc.dev/local-volume-node!=n1": false, "svc.dev/local-volume-node": false, "x=n1": false,
	} {
		attrs := request("n1", "watch", "", "persistentvolumes", "", "")
		requirements, err := labels.ParseToRequirements(selector)
		if err != nil {
			t.Fatal(err)
		}
		attrs.LabelSelectorRequirements = requirements
		if decision, reason, err := a.Authorize(t.Context(), attrs); err != nil || (decision == authorizer.DecisionAllow) != want {
			t.Errorf("%s: %v %q %v", selector, decision, reason, err)
		}
	}
}

func request(node, verb, group, resource, namespace, name string) authorizer.AttributesRecord {
	var subresource string
	for i := range resource {
		if resource[i] == '/' {
			resource, subresource = resource[:i], resource[i+1:]
			break
		}
	}
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: UserPrefix + node, Groups: []string{user.NodesGroup}},
		Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name, ResourceRequest: true,
	}
}

func TestOtherUsersAreNotNodes(t *testing.T) {
	a := newAuthorizer(t, []any{decode[corev1.Pod](t, ownPod)})
	for who, want := range map[*user.DefaultInfo]string{
		{Name: UserPrefix + "n1"}:                                    "",
		{Name: "n1", Groups: []string{user.NodesGroup}}:              "",
		{Name: UserPrefix, Groups: []string{user.NodesGroup}}:        `unknown node for user "system:node:"`,
		{Name: "jane", Groups: []string{user.SystemPrivilegedGroup}}: "",
	} {
		attrs := request("", "get", "", "secrets", "shop", "pull")
		attrs.User = who
		if decision, reason, err := a.Authorize(t.Context(), attrs); decision != authorizer.DecisionNoOpinion || reason != want || err != nil {
			t.Errorf("%v: %v %q %v", who, decision, reason, err)
		}
	}
}

func TestAccessEndsWithThePodVolumeOrAttachment(t *testing.T) {
	pod, pv, at := decode[corev1.Pod](t, ownPod), decode[corev1.PersistentVolume](t, volumeOfClaim), decode[storagev1.VolumeAttachment](t, attached)
	a := newAuthorizer(t, []any{pod, pv, at})
	allowed := func(group, resource, namespace, name string) bool {
		t.Helper()
		decision, _, err := a.Authorize(t.Context(), request("n1", "get", group, resource, namespace, name))
		if err != nil {
			t.Fatal(err)
		}
		return decision == authorizer.DecisionAllow
	}
	g := a.graph
	volumes, attachments, pods := storeOf(g, g.setVolume, g.removeVolume, func() {}), storeOf(g, g.setAttachment, g.removeAttachment, func() {}), storeOf(g, g.setPod, g.removePod, func() {})
	if !allowed("", "secrets", "drivers", "stage") || !allowed("storage.k8s.io", "volumeattachments", "", "at") {
		t.Fatal("no access in the beginning")
	}
	released := pv.DeepCopy()
	released.Spec.ClaimRef = nil
	if err := volumes.Update(released); err != nil || allowed("", "secrets", "drivers", "stage") || allowed("", "persistentvolumes", "", "pv") {
		t.Errorf("access to a released volume (%v)", err)
	}
	if err := volumes.Replace([]any{pv}, "1"); err != nil || !allowed("", "persistentvolumes", "", "pv") {
		t.Errorf("no access after a list (%v)", err)
	}
	if err := volumes.Delete(pv); err != nil || allowed("", "persistentvolumes", "", "pv") {
		t.Errorf("access to a deleted volume (%v)", err)
	}
	if err := attachments.Replace(nil, "1"); err != nil || allowed("storage.k8s.io", "volumeattachments", "", "at") {
		t.Errorf("access to an attachment that is not in the list (%v)", err)
	}
	if err := pods.Delete(pod); err != nil || allowed("", "secrets", "shop", "pull") {
		t.Errorf("access after the pod's deletion (%v)", err)
	}
	if len(g.pods)+len(g.claims)+len(g.volumes)+len(g.attachments) != 0 {
		t.Errorf("the graph keeps %v %v %v %v", g.pods, g.claims, g.volumes, g.attachments)
	}
}

func TestWhileTheAPICannotBeReadARefusalIsAnError(t *testing.T) {
	a := newAuthorizer(t, nil)
	a.client.(*fake.Clientset).PrependReactor("list", "pods", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		return true, nil, context.DeadlineExceeded
	})
	decision, _, err := a.Authorize(t.Context(), request("n1", "get", "", "secrets", "shop", "pull"))
	if decision != authorizer.DecisionNoOpinion || err == nil {
		t.Errorf("%v, %v", decision, err)
	}
}

func TestTheGraphFollowsTheAPIFromTheFirstRequestOfANode(t *testing.T) {
	pod := decode[corev1.Pod](t, ownPod)
	client := fake.NewClientset(pod, decode[corev1.PersistentVolume](t, volumeOfClaim))
	a := New(authorizerfactory.NewAlwaysAllowAuthorizer(), Features{})
	a.Follow(client)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx, clock.RealClock{}) }()
	defer func() { stop(); <-done }()
	if watches := client.Actions(); len(watches) > 0 {
		t.Errorf("requests before one of a node: %v", watches)
	}
	if decision, reason, err := a.Authorize(ctx, request("n1", "get", "", "persistentvolumes", "", "pv")); err != nil || decision != authorizer.DecisionAllow {
		t.Fatalf("the first request of a node: %v %q %v", decision, reason, err)
	}
	await := func(want bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return a.graph.usesSecret("n1", types.NamespacedName{Namespace: "drivers", Name: "stage"}) == want, nil
		}); err != nil {
			t.Fatalf("the secret of the volume is not %v: %v", want, err)
		}
	}
	await(true)
	// A fake client does not tell a watch of what has changed since the list.
	if err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", "pods") }), nil
	}); err != nil {
		t.Fatalf("pods are not watched: %v", err)
	}
	if err := client.CoreV1().Pods("shop").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(false)
}

// BenchmarkAuthorize: 1,000 nodes with 50 pods each.
func BenchmarkAuthorize(b *testing.B) {
	a := newAuthorizer(b, nil)
	before := heap()
	edges := fill(a.graph, 1000, 50)
	size := float64(heap()-before) / float64(edges)
	attrs := request("node-500", "get", "", "secrets", "namespace-0", "secret-500-49")
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		if decision, reason, err := a.Authorize(b.Context(), attrs); decision != authorizer.DecisionAllow {
			b.Fatal(reason, err)
		}
	}
	b.ReportMetric(size, "bytes/edge")
}

// TestAnEdgeOfTheGraphTakesLessThan100Bytes counts the memory of 1,000 nodes with 50 pods
// each. No test of this package runs beside it.
func TestAnEdgeOfTheGraphTakesLessThan100Bytes(t *testing.T) {
	g := newGraph()
	before := heap()
	edges := fill(g, 1000, 50)
	after := heap()
	if perEdge := float64(after-before) / float64(edges); after < before || perEdge >= 100 {
		t.Errorf("%d edges take %d bytes: %.0f each, want less than 100", edges, after-before, perEdge)
	}
	runtime.KeepAlive(g)
}

// heap returns the bytes of all objects that are in use.
func heap() uint64 {
	runtime.GC() // finishes what a collection before it has begun
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// fill adds pods, each with a secret of its own, and returns the number of edges.
func fill(g *graph, nodes, pods int) (edges int) {
	for n := range nodes {
		for p := range pods {
			g.setPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "namespace-0", Name: fmt.Sprintf("pod-%d-%d", n, p)},
				Spec: corev1.PodSpec{
					NodeName: fmt.Sprintf("node-%d", n), ServiceAccountName: "default",
					ImagePullSecrets: []corev1.LocalObjectReference{{Name: fmt.Sprintf("secret-%d-%d", n, p)}},
					Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}},
				},
			})
			edges += 4 // its node, account, secret and config map
		}
	}
	return edges
}
