package resource

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Tokens issues service account tokens.
type Tokens interface {
	Issue(ctx context.Context, request TokenRequest) (*Token, error)
}

// TokenRequest says what a token is to prove. At most one of Secret and (Pod
// or Node) is set.
type TokenRequest struct {
	// Namespace is the account's, and that of Pod and Secret.
	Namespace string
	// Account is whom the token proves its bearer to be.
	Account Referent
	// Audiences are who may believe it; none means the API server.
	Audiences []string
	// Lifetime is how long it is valid; the server may shorten it.
	Lifetime time.Duration
	// Pod, Secret or Node, if set, bounds the token's life by that object's.
	// With Pod, Node is only told: where the pod runs.
	Pod, Secret, Node *Referent
}

// Token is a token as it was issued.
type Token struct {
	Token           string
	Audiences       []string
	Lifetime        time.Duration
	Issued, Expires time.Time
}

// Referent is an object that a token speaks of. The UID tells it from a later
// object of the same name. The tags are the claims' names.
type Referent struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// ReferentOf is the object as one that a token speaks of.
func ReferentOf(obj metav1.Object) *Referent {
	return &Referent{Name: obj.GetName(), UID: obj.GetUID()}
}
