package resource

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"
)

// Env is the part of the server that the hooks and actions of kinds use.
type Env struct {
	// Clock is the server's clock. Hooks and actions read the time from it.
	Clock clock.PassiveClock
	// Objects gives access to the objects of another resource type, or nil if
	// there is no such type.
	Objects func(resource schema.GroupResource) Objects
	// Reservations gives access to a pool of keys, each of which one object can
	// hold, for example the cluster IP addresses. The kinds that use a pool name it.
	Reservations func(pool string) Reservations
	// CountAllocation, unless nil, counts an attempt to reserve a key of a pool. part
	// is the range within the pool, empty if it has only one, and static reports
	// whether the client named the key.
	CountAllocation func(pool, part string, static bool, err error)
	// ServiceCIDRs are the ranges of cluster IP addresses, the primary family
	// first (flag --service-cluster-ip-range).
	ServiceCIDRs []netip.Prefix
	// ServiceRanges, unless nil, returns the ranges that cluster IP addresses are allocated
	// from at the moment, in the order of their use: those of the ServiceCIDR objects that
	// are ready. If it is nil, they are ServiceCIDRs.
	ServiceRanges func() []netip.Prefix
	// NodePorts is the range of node ports (flag --service-node-port-range).
	NodePorts PortRange
	// Tokens issues service account tokens; it is nil where the server has no
	// key to sign them with (flag --service-account-signing-key-file).
	Tokens Tokens
	// NodeTokens allows tokens that are bound to a node (feature gate ServiceAccountTokenNodeBinding).
	NodeTokens bool
	// AllowPrivileged lets containers be privileged (flag --allow-privileged).
	AllowPrivileged bool
	// BindingLabels gives pods the labels of their bindings (feature gate
	// PodTopologyLabelsAdmission).
	BindingLabels bool
	// AppArmorFields sets the AppArmor profiles of new pods that have only the deprecated
	// annotations. Releases before 1.30 do not have the field.
	AppArmorFields bool
	// SpreadSelectors adds the values of matchLabelKeys to the selectors of topology spread
	// constraints of new pods (feature gate MatchLabelKeysInPodTopologySpreadSelectorMerge).
	SpreadSelectors bool
	// PodResources completes pod-level resources after admission, and keeps those that an
	// update leaves out (feature gate PodLevelResourcesFixDefaulting).
	PodResources bool
	// ResizePodResources lets a resize change pod-level resources (feature gate
	// InPlacePodLevelResourcesVerticalScaling).
	ResizePodResources bool
	// ProxyBySlices finds the pods behind a service that requests are proxied to by its
	// EndpointSlices, as from release 1.37 on, and not by its Endpoints.
	ProxyBySlices bool
	// EventTTL is how long an event is kept after its last change (flag
	// --event-ttl); zero means forever.
	EventTTL time.Duration
	// Authorizer decides access reviews, and Rules lists the permissions of a user.
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      authorizer.RuleResolver
	// Authenticator authenticates the tokens of token reviews. Audiences are those
	// of the API server; empty means that audiences are not checked.
	Authenticator authenticator.Request
	Audiences     authenticator.Audiences
	// Etcd reports whether etcd answers and accepts writes.
	Etcd func(ctx context.Context) error
	// Agents is how the API server reaches the agents of nodes.
	Agents Agents
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ From, To int32 }

// Objects reads and writes the objects of one type, as the hub's Go type. It
// bypasses authorization, admission and all validation but that of metadata: the
// caller must write valid objects. Errors are apierrors.
type Objects interface {
	Get(ctx context.Context, namespace, name string) (runtime.Object, error)
	// List returns the objects that the selector selects, in one namespace or, if
	// that is empty, in all. The objects may come from a cache and must not be
	// modified.
	List(ctx context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error)
	// ListCached is List as the watch cache has the objects, which may be a little older. It does
	// not wait until the cache has caught up with etcd.
	ListCached(ctx context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error)
	// Update calls change with the newest version of the object (which it may
	// modify) and writes the object that it returns. It calls change again if
	// another writer has changed the object since. It may change every field that
	// any of the kind's endpoints may change.
	Update(ctx context.Context, namespace, name string, dryRun bool, change func(obj runtime.Object) (runtime.Object, error)) (runtime.Object, error)
	// Delete requests the object's deletion.
	Delete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) error
}

// Reservations is a pool of keys, each of which one object can hold across all
// servers on the same etcd. A reservation is durable before Reserve returns.
type Reservations interface {
	// Reserve reserves the key for owner. It returns an AlreadyExists error if the
	// key is reserved, even by the same owner: if two requests that change one
	// object shared a reservation, the one that fails would release the key that
	// the other holds.
	Reserve(ctx context.Context, key string, owner Owner) error
	// Release releases the key if owner holds it.
	Release(ctx context.Context, key string, owner Owner) error
	// Held returns all reserved keys and their owners.
	Held(ctx context.Context) (map[string]Owner, error)
}

// Owner is the object that holds a reservation. The UID distinguishes it from a
// later object of the same name, whose reservations must survive the release of
// its predecessor's.
type Owner struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// OwnerOf returns the object as an owner of reservations.
func OwnerOf(obj metav1.Object) Owner {
	return Owner{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}
