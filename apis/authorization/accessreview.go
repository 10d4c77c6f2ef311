package authorization

import (
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"svc.dev/svc/apis/authentication"
	"svc.dev/svc/apis/resource"
)

// subjectAccessReviews report whether a user may do something.
var subjectAccessReviews = resource.Virtual[*authorizationv1.SubjectAccessReview]{
	Name:     "subjectaccessreviews",
	Versions: []resource.Version{resource.Alike[authorizationv1.SubjectAccessReview, authorizationv1beta1.SubjectAccessReview]()},
	Run: func(ctx context.Context, env *resource.Env, review *authorizationv1.SubjectAccessReview, _ bool) (runtime.Object, error) {
		if err := invalid("SubjectAccessReview", validateSubjectAccessReview(review)); err != nil {
			return nil, err
		}
		review.Status = statusOf(ctx, env.Authorizer, attributes(subject(review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		return review, nil
	},
}

// selfSubjectAccessReviews report whether the user who posts the review may do
// something.
var selfSubjectAccessReviews = resource.Virtual[*authorizationv1.SelfSubjectAccessReview]{
	Name:     "selfsubjectaccessreviews",
	Versions: []resource.Version{resource.Alike[authorizationv1.SelfSubjectAccessReview, authorizationv1beta1.SelfSubjectAccessReview]()},
	Run: func(ctx context.Context, env *resource.Env, review *authorizationv1.SelfSubjectAccessReview, _ bool) (runtime.Object, error) {
		if err := invalid("SelfSubjectAccessReview", validateSelfSubjectAccessReview(review)); err != nil {
			return nil, err
		}
		who, err := authentication.Requester(ctx)
		if err != nil {
			return nil, err
		}
		review.Status = statusOf(ctx, env.Authorizer, attributes(who, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes))
		return review, nil
	},
}

// localSubjectAccessReviews report whether a user may do something in the
// namespace to which the review is posted, so that the permission to post
// reviews can be granted for one namespace.
var localSubjectAccessReviews = resource.Virtual[*authorizationv1.LocalSubjectAccessReview]{
	Name:       "localsubjectaccessreviews",
	Versions:   []resource.Version{resource.Alike[authorizationv1.LocalSubjectAccessReview, authorizationv1beta1.LocalSubjectAccessReview]()},
	Namespaced: true,
	Run: func(ctx context.Context, env *resource.Env, review *authorizationv1.LocalSubjectAccessReview, _ bool) (runtime.Object, error) {
		if err := invalid("LocalSubjectAccessReview", validateLocalSubjectAccessReview(review)); err != nil {
			return nil, err
		}
		review.Status = statusOf(ctx, env.Authorizer, attributes(subject(review.Spec), review.Spec.ResourceAttributes, nil))
		return review, nil
	},
}

// selfSubjectRulesReviews list what the user who posts the review may do in a
// namespace.
var selfSubjectRulesReviews = resource.Virtual[*authorizationv1.SelfSubjectRulesReview]{
	Name:     "selfsubjectrulesreviews",
	Versions: []resource.Version{resource.Alike[authorizationv1.SelfSubjectRulesReview, authorizationv1beta1.SelfSubjectRulesReview]()},
	Run: func(ctx context.Context, env *resource.Env, review *authorizationv1.SelfSubjectRulesReview, _ bool) (runtime.Object, error) {
		who, err := authentication.Requester(ctx)
		if err != nil {
			return nil, err
		}
		if review.Spec.Namespace == "" {
			return nil, apierrors.NewBadRequest("no namespace on request")
		}
		resources, paths, incomplete, err := env.Rules.RulesFor(ctx, who, review.Spec.Namespace)
		// The lists are never null: clients range over them.
		status := authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{},
			NonResourceRules: []authorizationv1.NonResourceRule{},
			Incomplete:       incomplete,
		}
		for _, r := range resources {
			status.ResourceRules = appendNew(status.ResourceRules, authorizationv1.ResourceRule{
				Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
			})
		}
		for _, p := range paths {
			status.NonResourceRules = appendNew(status.NonResourceRules, authorizationv1.NonResourceRule{
				Verbs: p.GetVerbs(), NonResourceURLs: p.GetNonResourceURLs(),
			})
		}
		if err != nil {
			status.EvaluationError = err.Error()
		}
		return &authorizationv1.SelfSubjectRulesReview{Status: status}, nil
	},
}

// appendNew appends a rule, unless an equal one is there: several bindings, and the
// authorizers of a chain, may grant the same.
func appendNew[R any](rules []R, rule R) []R {
	if slices.ContainsFunc(rules, func(other R) bool { return equality.Semantic.DeepEqual(other, rule) }) {
		return rules
	}
	return append(rules, rule)
}

// statusOf returns the authorizer's decision as the status of a review. A failed
// evaluation is part of the status, not an error of the request.
func statusOf(ctx context.Context, decide authorizer.UnconditionalAuthorizer, ask authorizer.AttributesRecord) authorizationv1.SubjectAccessReviewStatus {
	decision, reason, err := decide.Authorize(ctx, ask)
	return authorizationv1.SubjectAccessReviewStatus{
		Allowed:         decision == authorizer.DecisionAllow,
		Denied:          decision == authorizer.DecisionDeny,
		Reason:          reason,
		EvaluationError: evaluationError(err, ask),
	}
}

// subject returns the user whose access a review is about.
func subject(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	who := &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID}
	for key, values := range spec.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = values
	}
	return who
}

func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(authorizationv1.SchemeGroupVersion.WithKind(kind).GroupKind(), "", errs)
}
