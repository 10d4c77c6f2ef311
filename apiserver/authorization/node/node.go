// Package node owns the authorizer of the mode Node: a node may read the objects that
// its pods refer to, and those of other pods not.
// https://kubernetes.io/docs/reference/access-authn-authz/node
package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/localpath"
	"svc.dev/svc/apis/podspec"
)

// UserPrefix is the prefix of nodes' user names.
const UserPrefix = "system:node:"

// Authorizer allows nodes what their [Rules] allow, and to read the objects
// that their pods refer to. On requests of other users it has no opinion.
type Authorizer struct {
	rules    Rules
	features Features
	graph    *graph
	client   kubernetes.Interface // nil before Follow
	// wake closes nodes, which starts the watches: a server without nodes needs none.
	wake  func()
	nodes chan struct{}
	// filled is closed when the graph has all objects that there were when the watches
	// started.
	filled chan struct{}
}

// Rules are the permissions of nodes that do not depend on their pods.
type Rules interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// Features are what feature gates change.
type Features struct {
	// BySelectors lets a node read only its own Node and, by their selector, its own pods and
	// slices of devices: AuthorizeNodeWithSelectors (KEP-4601).
	BySelectors bool
	// StorageHealth lets a node write the status of its CSINode: CSIVolumeHealth (KEP-1432).
	StorageHealth bool
}

// New returns an authorizer that knows no pods until Follow is called.
func New(rules Rules, features Features) *Authorizer {
	nodes := make(chan struct{})
	return &Authorizer{
		rules: rules, features: features, graph: newGraph(),
		nodes: nodes, wake: sync.OnceFunc(func() { close(nodes) }), filled: make(chan struct{}),
	}
}

// check decides about a request of a node for a resource whose access depends on the
// node's pods. It returns the reason of a refusal, or "".
type check func(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (refusal string, err error)

// checks are those of the resources, by group and name.
var checks = map[[2]string]check{
	{"", "secrets"}:                         checkRead(podspec.Secret),
	{"", "configmaps"}:                      checkRead(podspec.ConfigMap),
	{"", "persistentvolumeclaims"}:          checkClaim,
	{"", "persistentvolumes"}:               checkVolume,
	{"", "serviceaccounts"}:                 checkAccount,
	{"resource.k8s.io", "resourceclaims"}:   checkResourceClaim,
	{"resource.k8s.io", "resourceslices"}:   checkResourceSlice,
	{"storage.k8s.io", "volumeattachments"}: checkAttachment,
	{"storage.k8s.io", "csinodes"}:          checkCSINode,
	{"coordination.k8s.io", "leases"}:       checkOwn("a node lease", corev1.NamespaceNodeLease),

	{"certificates.k8s.io", "podcertificaterequests"}: checkPodCertificateRequest,
}

// restrictions are the checks of resources for which the rules of nodes allow more than
// the feature gate AuthorizeNodeWithSelectors (KEP-4601) does: a node reads its own Node and
// the pods that are bound to it. What a check does not refuse, the rules decide.
var restrictions = map[[2]string]check{
	{"", "nodes"}: restrictNodes,
	{"", "pods"}:  restrictPods,
}

// Authorize implements authorizer.Authorizer. The reasons are those of kube-apiserver.
func (a *Authorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	node, isNode := name(attrs.GetUser())
	switch {
	case !isNode:
		return authorizer.DecisionNoOpinion, "", nil
	case node == "":
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", attrs.GetUser().GetName()), nil
	}
	a.wake()
	resource := [2]string{attrs.GetAPIGroup(), attrs.GetResource()}
	decide, thenRules := checks[resource], false
	if decide == nil && a.features.BySelectors {
		decide, thenRules = restrictions[resource], true
	}
	if decide == nil || !attrs.IsResourceRequest() {
		return a.rules.Authorize(ctx, attrs)
	}
	incomplete := !a.complete()
	refusal, err := decide(ctx, a, node, attrs)
	if incomplete && refusal == unrelated(node) && a.awaitGraph(ctx) {
		refusal, err = decide(ctx, a, node, attrs)
	}
	switch {
	case err != nil:
		return authorizer.DecisionNoOpinion, "", err
	case refusal != "":
		return authorizer.DecisionNoOpinion, refusal, nil
	case thenRules:
		return a.rules.Authorize(ctx, attrs)
	}
	return authorizer.DecisionAllow, "", nil
}

// fillTimeout is how long a request waits for the graph that the first request of a node
// has started.
const fillTimeout = 5 * time.Second

// complete reports whether the graph is filled.
func (a *Authorizer) complete() bool {
	select {
	case <-a.filled:
		return true
	default:
		return false
	}
}

// awaitGraph waits until the graph is filled. It reports false if it is not in time.
func (a *Authorizer) awaitGraph(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	select {
	case <-a.filled:
		return true
	case <-limited.Done():
		return false
	}
}

// name returns the name of the node that a user is; it is empty if the user is in the
// group of nodes under another name.
func name(who user.Info) (node string, isNode bool) {
	if who == nil || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return "", false
	}
	node, named := strings.CutPrefix(who.GetName(), UserPrefix)
	if !named {
		return "", false
	}
	return node, true
}

// ConditionsAwareAuthorize implements authorizer.Authorizer; no rule has conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions implements authorizer.Authorizer.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor implements authorizer.RuleResolver. The rules that depend on pods are
// missing, which the result says.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	if _, isNode := name(who); !isNode {
		return nil, nil, false, nil
	}
	resources, paths, _, err := a.rules.RulesFor(ctx, who, namespace)
	if err == nil {
		err = fmt.Errorf("node authorizer does not support user rule resolution of the objects that pods refer to")
	}
	return resources, paths, true, err
}

// unrelated is the reason of a refusal.
func unrelated(node string) string {
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// checkRead returns the check of a kind of which a node reads single objects, also by a
// list or watch that names one.
func checkRead(kind podspec.ReferenceKind) check {
	return func(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
		switch {
		case !slices.Contains([]string{"get", "list", "watch"}, attrs.GetVerb()):
			return "can only read resources of this type", nil
		case attrs.GetSubresource() != "":
			return "cannot read subresource", nil
		case attrs.GetNamespace() == "":
			return "can only read namespaced object of this type", nil
		}
		return a.related(ctx, node, kind, attrs)
	}
}

func checkClaim(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch {
	case attrs.GetSubresource() == "status":
		if !slices.Contains([]string{"update", "patch"}, attrs.GetVerb()) {
			return "can only update resources of this type", nil
		}
	case attrs.GetVerb() != "get":
		return "can only get individual resources of this type", nil
	case attrs.GetSubresource() != "":
		return "cannot get subresource", nil
	}
	return a.related(ctx, node, podspec.PersistentVolumeClaim, attrs)
}

// checkResourceClaim allows a node to read the resource claims of its pods.
func checkResourceClaim(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch {
	case attrs.GetVerb() != "get":
		return "can only get individual resources of this type", nil
	case attrs.GetSubresource() != "":
		return "cannot get subresource", nil
	}
	return a.related(ctx, node, podspec.ResourceClaim, attrs)
}

// checkVolume allows a node to read the volumes that its pods use, to list and watch
// the directories of its disk that are volumes, and to patch those: the admission
// plugin NodeRestriction restricts that to the finalizer.
func checkVolume(_ context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch attrs.GetVerb() {
	case "list", "watch":
		if !selects(attrs, localpath.NodeLabel, node) {
			return fmt.Sprintf("can only list and watch volumes with the label selector %s=%s", localpath.NodeLabel, node), nil
		}
		return "", nil
	case "patch":
		if attrs.GetSubresource() != "" || !a.graph.hasVolume(node, attrs.GetName()) {
			return unrelated(node), nil
		}
		return "", nil
	}
	return checkGet(node, attrs, a.graph.usesVolume)
}

// selects reports whether a request selects only objects whose label has the value.
func selects(attrs authorizer.Attributes, label, value string) bool {
	requirements, err := attrs.GetLabelSelector()
	return err == nil && slices.ContainsFunc(requirements, func(r labels.Requirement) bool {
		one := r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals || r.Operator() == selection.In
		return one && r.Key() == label && len(r.Values()) == 1 && r.Values().Has(value)
	})
}

func checkAttachment(_ context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	return checkGet(node, attrs, a.graph.attaches)
}

// checkGet is the check of a cluster-scoped kind.
func checkGet(node string, attrs authorizer.Attributes, uses func(node, name string) bool) (string, error) {
	switch {
	case attrs.GetVerb() != "get":
		return "can only get individual resources of this type", nil
	case attrs.GetSubresource() != "":
		return "cannot get subresource", nil
	case attrs.GetName() == "":
		return "No Object name found", nil
	case !uses(node, attrs.GetName()):
		return unrelated(node), nil
	}
	return "", nil
}

// checkAccount allows tokens of the service accounts of pods. The admission plugin
// NodeRestriction checks that a token is bound to a pod of the node.
func checkAccount(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch attrs.GetSubresource() {
	case "token":
		if attrs.GetVerb() != "create" || attrs.GetName() == "" {
			return "can only create tokens for individual service accounts", nil
		}
	case "":
		if attrs.GetVerb() != "get" {
			return "can only get individual resources of this type", nil
		}
	default:
		return "cannot get subresource", nil
	}
	return a.related(ctx, node, podspec.ServiceAccount, attrs)
}

// checkPodCertificateRequest allows a node to request certificates, which the admission
// plugin NodeRestriction allows for its own pods only, and to read its requests.
func checkPodCertificateRequest(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	if attrs.GetSubresource() != "" {
		return "nodes may not access the status subresource of PodCertificateRequests", nil
	}
	switch attrs.GetVerb() {
	case "create":
		return "", nil
	case "get":
		if attrs.GetName() == "" {
			return "No Object name found", nil
		}
		request, err := a.client.CertificatesV1().PodCertificateRequests(attrs.GetNamespace()).Get(ctx, attrs.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && string(request.Spec.NodeName) != node {
			return unrelated(node), nil
		}
		return "", err
	case "list", "watch":
		if !selectsNode(attrs, node) {
			return "can only list/watch podcertificaterequests with nodeName field selector", nil
		}
		return "", nil
	}
	return fmt.Sprintf("nodes may not %s podcertificaterequests", attrs.GetVerb()), nil
}

// checkResourceSlice allows a node to publish devices in slices of its own (KEP-4381). The
// admission plugin NodeRestriction checks the node in the slices that it writes.
func checkResourceSlice(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	if attrs.GetSubresource() != "" {
		return "cannot authorize ResourceSlice subresources", nil
	}
	switch attrs.GetVerb() {
	case "create":
		return "", nil
	case "get", "update", "patch", "delete":
		if attrs.GetName() == "" {
			return "No Object name found", nil
		}
		slice, err := a.client.ResourceV1().ResourceSlices().Get(ctx, attrs.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && ptr.Deref(slice.Spec.NodeName, "") != node {
			return unrelated(node), nil
		}
		return "", err
	case "list", "watch", "deletecollection":
		if a.features.BySelectors && !selectsNode(attrs, node) {
			return "can only list/watch/deletecollection resourceslices with nodeName field selector", nil
		}
		return "", nil
	}
	return "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection", nil
}

// checkCSINode allows a node its CSINode and, with the feature, the status of that.
func checkCSINode(ctx context.Context, a *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
	switch {
	case attrs.GetSubresource() != "status":
		return checkOwn("a CSINode", "")(ctx, a, node, attrs)
	case !a.features.StorageHealth:
		return "CSINode status access requires CSIVolumeHealth feature", nil
	case !slices.Contains([]string{"get", "update", "patch"}, attrs.GetVerb()):
		return "can only get, update, or patch CSINode status", nil
	case attrs.GetName() != node:
		return "can only access CSINode with the same name as the requesting node", nil
	}
	return "", nil
}

// checkOwn returns the check of a kind of which a node has one object, of its own name.
func checkOwn(what, namespace string) check {
	return func(_ context.Context, _ *Authorizer, node string, attrs authorizer.Attributes) (string, error) {
		verb := attrs.GetVerb()
		switch {
		case !slices.Contains([]string{"get", "create", "update", "patch", "delete"}, verb):
			return fmt.Sprintf("can only get, create, update, patch, or delete %s", what), nil
		case attrs.GetSubresource() != "":
			return fmt.Sprintf("cannot authorize subresources of %s", what), nil
		case attrs.GetNamespace() != namespace:
			return fmt.Sprintf("can only access leases in the %q system namespace", namespace), nil
		case verb != "create" && attrs.GetName() != node: // a creation names its object in the body
			return fmt.Sprintf("can only access %s with the same name as the requesting node", what), nil
		}
		return "", nil
	}
}

// related reports, as the reason of a refusal, whether a pod of the node refers to an
// object. The graph follows the API by a watch, and an agent may ask for the objects of
// a pod as soon as the pod is bound: before a refusal the pods are read from the API.
func (a *Authorizer) related(ctx context.Context, node string, kind podspec.ReferenceKind, attrs authorizer.Attributes) (refusal string, err error) {
	if attrs.GetName() == "" {
		return "No Object name found", nil
	}
	object := types.NamespacedName{Namespace: attrs.GetNamespace(), Name: attrs.GetName()}
	ref := podspec.Reference{Kind: kind, Name: object.Name}
	if kind == podspec.Secret && a.graph.usesSecret(node, object) || a.graph.refers(node, object.Namespace, ref) {
		return "", nil
	}
	pods, err := a.bound(ctx, node)
	if err != nil {
		return "", fmt.Errorf("read the pods of node %q: %w", node, err)
	}
	for i := range pods {
		if pods[i].Namespace == object.Namespace && slices.Contains(references(&pods[i]), ref) {
			return "", nil
		}
	}
	return unrelated(node), nil
}
