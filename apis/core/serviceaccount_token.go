package core

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

var (
	serviceAccountResource = schema.GroupResource{Resource: "serviceaccounts"}
	secretResource         = schema.GroupResource{Resource: "secrets"}
	nodeResource           = schema.GroupResource{Resource: "nodes"}
	tokenRequestKind       = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind()
)

// The lifetimes of tokens, in seconds.
const (
	defaultTokenSeconds = 60 * 60
	minTokenSeconds     = 10 * 60
	maxTokenSeconds     = 1 << 32
)

// token issues a token that authenticates its bearer as the service account.
var token = resource.Action{
	Name:  "token",
	Input: func() runtime.Object { return &authenticationv1.TokenRequest{} },
	Default: func(input runtime.Object) {
		resource.Fill(&input.(*authenticationv1.TokenRequest).Spec.ExpirationSeconds, defaultTokenSeconds)
	},
	Prepare: func(ctx context.Context, env *resource.Env, req resource.ActionRequest) error {
		return prepareTokenRequest(ctx, env, req.Namespace, req.Name, req.Input.(*authenticationv1.TokenRequest))
	},
	Run: func(ctx context.Context, env *resource.Env, req resource.ActionRequest) (runtime.Object, error) {
		return issueToken(ctx, env, req.Namespace, req.Name, req.Input.(*authenticationv1.TokenRequest))
	},
}

// prepareTokenRequest completes a request, so that admission sees all that the token will be
// issued for, and validates it.
func prepareTokenRequest(ctx context.Context, env *resource.Env, namespace, name string, request *authenticationv1.TokenRequest) error {
	if env.Tokens == nil {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "this server issues no service account tokens: it was started without --service-account-signing-key-file",
		}}
	}
	found, err := env.Objects(serviceAccountResource).Get(ctx, namespace, name)
	if err != nil {
		return err
	}
	account := found.(*corev1.ServiceAccount)
	if request.UID != "" && request.UID != account.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: tokenRequestKind.Group, Resource: tokenRequestKind.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.UID))
	}
	request.UID, request.CreationTimestamp = account.UID, metav1.NewTime(env.Clock.Now())
	if len(request.Spec.Audiences) == 0 {
		request.Spec.Audiences = slices.Clone(env.Audiences)
	}
	request.Status = authenticationv1.TokenRequestStatus{}
	if errs := validateTokenRequest(request); len(errs) > 0 {
		return apierrors.NewInvalid(tokenRequestKind, "", errs)
	}
	return nil
}

// issueToken issues the token of a request that is prepared: its UID is the account's.
func issueToken(ctx context.Context, env *resource.Env, namespace, name string, request *authenticationv1.TokenRequest) (runtime.Object, error) {
	wanted := resource.TokenRequest{
		Namespace: namespace,
		Account:   resource.Referent{Name: name, UID: request.UID},
		Audiences: request.Spec.Audiences,
		Lifetime:  time.Duration(*request.Spec.ExpirationSeconds) * time.Second,
	}
	if ref := request.Spec.BoundObjectRef; ref != nil {
		if err := bindToken(ctx, env, ref, &wanted); err != nil {
			return nil, err
		}
	}
	issued, err := env.Tokens.Issue(ctx, wanted)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	request.CreationTimestamp = metav1.NewTime(issued.Issued)
	request.Spec.ExpirationSeconds = ptr.To(int64(issued.Lifetime / time.Second))
	request.Status = authenticationv1.TokenRequestStatus{Token: issued.Token, ExpirationTimestamp: metav1.NewTime(issued.Expires)}
	return request, nil
}

func validateTokenRequest(request *authenticationv1.TokenRequest) field.ErrorList {
	path, seconds := field.NewPath("spec", "expirationSeconds"), ptr.Deref(request.Spec.ExpirationSeconds, 0)
	switch {
	case seconds < minTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > maxTokenSeconds:
		return field.ErrorList{field.Invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// bindToken binds the token to the object of ref: it becomes invalid when the
// object is deleted.
func bindToken(ctx context.Context, env *resource.Env, ref *authenticationv1.BoundObjectReference, wanted *resource.TokenRequest) error {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	var bound *resource.Referent
	var err error
	switch kind.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		bound, err = bindTokenToPod(ctx, env, ref.Name, wanted)
	case schema.GroupKind{Kind: "Secret"}:
		bound, err = referent(ctx, env, secretResource, wanted.Namespace, ref.Name)
		wanted.Secret = bound
	case schema.GroupKind{Kind: "Node"}:
		if !env.NodeTokens {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s without the feature gate ServiceAccountTokenNodeBinding", kind))
		}
		bound, err = referent(ctx, env, nodeResource, "", ref.Name)
		wanted.Node = bound
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != bound.UID {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

// bindTokenToPod binds a token to a pod of the service account. The token names
// the pod's node, too.
func bindTokenToPod(ctx context.Context, env *resource.Env, name string, wanted *resource.TokenRequest) (*resource.Referent, error) {
	found, err := env.Objects(podResource).Get(ctx, wanted.Namespace, name)
	if err != nil {
		return nil, err
	}
	pod := found.(*corev1.Pod)
	if pod.Spec.ServiceAccountName != wanted.Account.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", wanted.Account.Name))
	}
	wanted.Pod = resource.ReferentOf(pod)
	if pod.Spec.NodeName != "" {
		wanted.Node, err = referent(ctx, env, nodeResource, "", pod.Spec.NodeName)
		switch {
		case apierrors.IsNotFound(err):
			// The token names the node without its UID.
			wanted.Node = &resource.Referent{Name: pod.Spec.NodeName}
		case err != nil:
			return nil, err
		}
	}
	return wanted.Pod, nil
}

func referent(ctx context.Context, env *resource.Env, gr schema.GroupResource, namespace, name string) (*resource.Referent, error) {
	found, err := env.Objects(gr).Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return resource.ReferentOf(found.(metav1.Object)), nil
}
