// Package ownerreferences owns the admission plugin OwnerReferencesPermissionEnforcement
// of Kubernetes: a user who changes the owners of an object needs the permission to
// delete the object, because the garbage collector deletes it with its owners. A user
// who makes an object block the deletion of an owner needs the permission to set the
// owner's finalizers.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
package ownerreferences

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "OwnerReferencesPermissionEnforcement"

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(io.Reader) (admission.Interface, error) {
		return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update)}, nil
	})
}

type plugin struct {
	*admission.Handler
	authorizer authorizer.Authorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.ValidationInterface = &plugin{}
	_ initializer.WantsAuthorizer   = &plugin{}
	_ initializer.WantsRESTMapper   = &plugin{}
)

// SetAuthorizer implements initializer.WantsAuthorizer.
func (p *plugin) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// SetRESTMapper implements initializer.WantsRESTMapper.
func (p *plugin) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// ValidateInitialization implements admission.InitializationValidator.
func (p *plugin) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil {
		return errors.New("the plugin needs an authorizer and the kinds that are served")
	}
	return nil
}

// Validate implements admission.ValidationInterface. The owners of a pod do not
// change through its status.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if _, isPod := a.GetObject().(*corev1.Pod); isPod && a.GetSubresource() == "status" {
		return nil
	}
	owners, before := ownersOf(a.GetObject()), ownersOf(a.GetOldObject())
	if len(owners) == len(before) && (len(owners) == 0 || apiequality.Semantic.DeepEqual(owners, before)) {
		return nil
	}
	// The creator of an object needs no permission to delete it.
	if a.GetOperation() != admission.Create {
		if err := p.mayDelete(ctx, a); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	blocking := newlyBlocking(owners, before)
	if len(blocking) == 0 || p.mayFinalizeAll(ctx, a) {
		return nil
	}
	for _, owner := range blocking {
		if err := p.mayFinalize(ctx, a, owner); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

// ownersOf returns the owner references of an object, none if it has no metadata.
func ownersOf(object runtime.Object) []metav1.OwnerReference {
	if object == nil {
		return nil
	}
	o, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return o.GetOwnerReferences()
}

// newlyBlocking returns the owners whose deletion the object blocks now and did not
// block before.
func newlyBlocking(owners, before []metav1.OwnerReference) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(owners), func(owner metav1.OwnerReference) bool {
		return !ptr.Deref(owner.BlockOwnerDeletion, false) || slices.ContainsFunc(before, func(old metav1.OwnerReference) bool {
			return old.UID == owner.UID && ptr.Deref(old.BlockOwnerDeletion, false)
		})
	})
}

func (p *plugin) mayDelete(ctx context.Context, a admission.Attributes) error {
	decision, reason, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "delete", Namespace: a.GetNamespace(), Name: a.GetName(),
		APIGroup: a.GetResource().Group, APIVersion: a.GetResource().Version, Resource: a.GetResource().Resource, Subresource: a.GetSubresource(),
		ResourceRequest: true,
	})
	if decision != authorizer.DecisionAllow {
		return refusal("cannot set an ownerRef on a resource you can't delete", reason, err)
	}
	return nil
}

// mayFinalizeAll reports whether the user may set finalizers of any object: then no
// kind needs to be looked up, which discovery may delay.
func (p *plugin) mayFinalizeAll(ctx context.Context, a admission.Attributes) bool {
	decision, _, err := p.authorizer.Authorize(ctx, authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: "update", APIGroup: "*", APIVersion: "*", Resource: "*", Subresource: "finalizers", Name: "*", ResourceRequest: true,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

// mayFinalize returns an error unless the user may set the finalizers of an owner. A
// namespaced owner is in the object's namespace.
func (p *plugin) mayFinalize(ctx context.Context, a admission.Attributes, owner metav1.OwnerReference) error {
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	var mappings []*meta.RESTMapping
	if err == nil {
		mappings, err = p.mapper.RESTMappings(gv.WithKind(owner.Kind).GroupKind(), gv.Version)
	}
	if err != nil {
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", owner.APIVersion, owner.Kind, err)
	}
	for _, mapping := range mappings {
		record := authorizer.AttributesRecord{
			User: a.GetUserInfo(), Verb: "update", Name: owner.Name, ResourceRequest: true,
			APIGroup: mapping.Resource.Group, APIVersion: mapping.Resource.Version, Resource: mapping.Resource.Resource, Subresource: "finalizers",
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			record.Namespace = a.GetNamespace()
		}
		if decision, reason, err := p.authorizer.Authorize(ctx, record); decision != authorizer.DecisionAllow {
			return refusal("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on", reason, err)
		}
	}
	return nil
}

// refusal returns Kubernetes' message, which has the authorizer's error even if there
// is none.
func refusal(what, reason string, err error) error {
	if err == nil {
		return fmt.Errorf("%s: %s, <nil>", what, reason)
	}
	return fmt.Errorf("%s: %s, %w", what, reason, err)
}
