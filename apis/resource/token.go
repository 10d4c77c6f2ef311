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

// TokenRequest holds the claims of a token to issue. At most one of Secret and (Pod
// or Node) is set.
type TokenRequest struct {
	// Namespace is the account's, and that of Pod and Secret.
	Namespace string
	// Account is the service account that the token authenticates.
	Account Referent
	// Audiences are the intended audiences of the token.
	Audiences []string
	// Lifetime is how long it is valid; the server may shorten it.
	Lifetime time.Duration
	// Pod, Secret or Node, if set, is the object that the token is bound to: the
	// token becomes invalid when the object is deleted. With Pod, Node is only
	// information: the node on which the pod runs.
	Pod, Secret, Node *Referent
}

// Token is a token that was issued.
type Token struct {
	Token           string
	Lifetime        time.Duration
	Issued, Expires time.Time
}

// Referent is an object that a token refers to. The UID distinguishes it from a
// later object of the same name. The JSON names are those of the claims.
type Referent struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid,omitempty"`
}

// ReferentOf returns the object as one that a token refers to.
func ReferentOf(obj metav1.Object) *Referent {
	return &Referent{Name: obj.GetName(), UID: obj.GetUID()}
}
