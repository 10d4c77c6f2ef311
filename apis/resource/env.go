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
	"k8s.io/utils/clock"
)

// Env is what the hooks and actions of a kind may use of the server.
type Env struct {
	// Clock is the server's clock. Hooks and actions read the time from it.
	Clock clock.PassiveClock
	// Objects gives access to the objects of another resource type, or nil if
	// there is no such type.
	Objects func(resource schema.GroupResource) Objects
	// Claims gives access to a pool of things of which each can be held once,
	// for example the cluster IP addresses. Pools are named by those who use them.
	Claims func(pool string) Claims
	// ServiceCIDRs are the ranges of cluster IP addresses, the primary family
	// first (flag --service-cluster-ip-range).
	ServiceCIDRs []netip.Prefix
	// NodePorts is the range of node ports (flag --service-node-port-range).
	NodePorts PortRange
	// Tokens issues service account tokens; it is nil where the server has no
	// key to sign them with (flag --service-account-signing-key-file).
	Tokens Tokens
	// AllowPrivileged lets containers be privileged (flag --allow-privileged).
	AllowPrivileged bool
	// EventTTL is how long an event is kept after its last change (flag
	// --event-ttl); zero is for ever.
	EventTTL time.Duration
	// Etcd reports whether etcd answers and accepts writes.
	Etcd func(ctx context.Context) error
	// Agents says how the agents of nodes are reached.
	Agents Agents
}

// PortRange is a range of ports, both ends included.
type PortRange struct{ From, To int32 }

// Objects reads and writes the objects of one type, in hub form, past
// authorization, admission and, but for metadata, validation: who writes sees
// to it that the object is valid. Errors are apierrors.
type Objects interface {
	Get(ctx context.Context, namespace, name string) (runtime.Object, error)
	// List returns the namespace's objects that the selector selects, all
	// namespaces' if it is empty. The objects may come from a cache and must
	// not be modified.
	List(ctx context.Context, namespace string, selector labels.Selector) ([]runtime.Object, error)
	// Update calls change with the newest version of the object (which it may
	// modify) and writes what it returns, again if somebody else was faster.
	// What any of the kind's endpoints may change can be changed.
	Update(ctx context.Context, namespace, name string, dryRun bool, change func(obj runtime.Object) (runtime.Object, error)) (runtime.Object, error)
	// Delete requests the object's deletion.
	Delete(ctx context.Context, namespace, name string, options *metav1.DeleteOptions) error
}

// Claims is a pool of which every key can be claimed once, across all servers
// on the same etcd. A claim is durable before Claim returns.
type Claims interface {
	// Claim takes the key for owner. It returns an AlreadyExists error if the
	// key is claimed, even by the same owner: two requests that change one
	// object must not share a claim, or the one that fails would give up what
	// the other holds.
	Claim(ctx context.Context, key string, owner Owner) error
	// Release gives the key up, if owner holds it.
	Release(ctx context.Context, key string, owner Owner) error
	// Held returns all claimed keys and their owners.
	Held(ctx context.Context) (map[string]Owner, error)
}

// Owner is the object that holds a claim. The UID tells it from a later object
// of the same name, whose claims must survive the release of its predecessor's.
type Owner struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// OwnerOf is the object as an owner of claims.
func OwnerOf(obj metav1.Object) Owner {
	return Owner{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID()}
}
