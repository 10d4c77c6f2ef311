package convert

import (
	"fmt"

	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"svc.dev/svc/internal/manifest"
)

const (
	extensionsV1beta1 = "extensions/v1beta1"
	appsV1beta1       = "apps/v1beta1"
	appsV1beta2       = "apps/v1beta2"
	appsV1            = "apps/v1"

	resourceV1alpha3 = "resource.k8s.io/v1alpha3"
	resourceV1beta1  = "resource.k8s.io/v1beta1"
	resourceV1beta2  = "resource.k8s.io/v1beta2"
)

// steps are the conversions that do more than to change the apiVersion, or that lead to
// another group: the table of removed versions, document 2, section 9, and later ones.
func steps() []step {
	return []step{
		{[]string{"Deployment"}, []string{extensionsV1beta1, appsV1beta1, appsV1beta2}, appsV1, deployment},
		{[]string{"DaemonSet"}, []string{extensionsV1beta1, appsV1beta2}, appsV1, daemonSet},
		{[]string{"StatefulSet"}, []string{appsV1beta1, appsV1beta2}, appsV1, statefulSet},
		{[]string{"ReplicaSet"}, []string{extensionsV1beta1, appsV1beta1, appsV1beta2}, appsV1, replicaSet},
		{[]string{"NetworkPolicy"}, []string{extensionsV1beta1}, "networking.k8s.io/v1", nil},
		{[]string{"PodSecurityPolicy"}, []string{extensionsV1beta1}, "policy/v1beta1", nil},
		{[]string{"Ingress"}, []string{extensionsV1beta1}, "networking.k8s.io/v1beta1", nil},
		{[]string{"Ingress"}, []string{extensionsV1beta1, "networking.k8s.io/v1beta1"}, "networking.k8s.io/v1", ingress},
		{[]string{"HorizontalPodAutoscaler"}, []string{"autoscaling/v2beta1"}, "autoscaling/v2beta2", autoscaler},
		{[]string{"HorizontalPodAutoscaler"}, []string{"autoscaling/v2beta2"}, "autoscaling/v2", nil},
		{[]string{"PodDisruptionBudget"}, []string{"policy/v1beta1"}, "policy/v1", disruptionBudget},
		{[]string{"EndpointSlice"}, []string{"discovery.k8s.io/v1beta1"}, "discovery.k8s.io/v1", endpointSlice},
		{[]string{"Event"}, []string{"events.k8s.io/v1beta1"}, "events.k8s.io/v1", event},
		{[]string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}, []string{"admissionregistration.k8s.io/v1beta1"}, "admissionregistration.k8s.io/v1", webhooks},
		{[]string{"MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"}, []string{"admissionregistration.k8s.io/v1alpha1"}, "admissionregistration.k8s.io/v1beta1", policyBinding},
		{[]string{"MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding"}, []string{"admissionregistration.k8s.io/v1beta1"}, "admissionregistration.k8s.io/v1", nil},
		{[]string{"CustomResourceDefinition"}, []string{"apiextensions.k8s.io/v1beta1"}, "apiextensions.k8s.io/v1", customResourceDefinition},
		{[]string{"LocalSubjectAccessReview", "SubjectAccessReview"}, []string{"authorization.k8s.io/v1beta1"}, "authorization.k8s.io/v1", accessReview},
		{[]string{"CertificateSigningRequest"}, []string{"certificates.k8s.io/v1beta1"}, "certificates.k8s.io/v1", signingRequest},
		{[]string{"PriorityLevelConfiguration"}, []string{"flowcontrol.apiserver.k8s.io/v1alpha1", "flowcontrol.apiserver.k8s.io/v1beta1", "flowcontrol.apiserver.k8s.io/v1beta2"}, "flowcontrol.apiserver.k8s.io/v1beta3", nominalShares},
		{[]string{"PriorityLevelConfiguration"}, []string{"flowcontrol.apiserver.k8s.io/v1beta3"}, "flowcontrol.apiserver.k8s.io/v1", zeroShares},
		{[]string{"ResourceClaim", "ResourceClaimTemplate"}, []string{resourceV1alpha3}, resourceV1beta1, nil},
		{[]string{"ResourceSlice"}, []string{resourceV1alpha3}, resourceV1beta1, deviceCapacity},
		{[]string{"ResourceClaim"}, []string{resourceV1beta1}, resourceV1beta2, deviceClaim},
		{[]string{"ResourceClaimTemplate"}, []string{resourceV1beta1}, resourceV1beta2, deviceClaimTemplate},
		{[]string{"ResourceSlice"}, []string{resourceV1beta1}, resourceV1beta2, deviceSlice},
		{[]string{"ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}, []string{resourceV1beta2}, "resource.k8s.io/v1", nil},
		{[]string{"RuntimeClass"}, []string{"node.k8s.io/v1alpha1"}, "node.k8s.io/v1", runtimeClass},
		{[]string{"ClusterRoleBinding", "RoleBinding"}, []string{"rbac.authorization.k8s.io/v1alpha1"}, "rbac.authorization.k8s.io/v1", bindingSubjects},
	}
}

func accessReview(e *edit) { e.rename(manifest.Get(e.obj, "spec"), "spec", "group", "groups") }

func nominalShares(e *edit) {
	e.rename(manifest.Get(e.obj, "spec", "limited"), "spec.limited", "assuredConcurrencyShares", "nominalConcurrencyShares")
}

// zeroShares keeps what 0 means before v1: the default or, with an annotation that v1 forbids, 0.
func zeroShares(e *edit) {
	limited := manifest.Get(e.obj, "spec", "limited")
	const key = "nominalConcurrencyShares"
	const annotation = flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey
	if at := manifest.Key(manifest.Get(e.obj, "metadata", "annotations"), annotation); at != nil { // its value does not matter
		e.changed(at, join("metadata.annotations", annotation), "removed: v1 forbids it, and 0 is 0 there")
		deleteAnnotation(e.obj, annotation)
		e.keep(limited, "spec.limited", key, manifest.Int(0), "the annotation makes it so, and v1 has 30")
		return
	}
	if manifest.Text(limited, key) == "0" {
		if e.patch { // without it, the object's value would stay
			e.changed(manifest.Key(limited, key), "spec.limited."+key, "0 is written as 30, the default, which it is in %s, and not in v1", e.version)
			manifest.Set(limited, key, manifest.Int(30))
			return
		}
		e.changed(manifest.Key(limited, key), "spec.limited."+key, "0 is left out, as it is the default, 30, in %s and none in v1", e.version)
		manifest.Delete(limited, key)
	}
}

func runtimeClass(e *edit) {
	spec := manifest.Delete(e.obj, "spec")
	for _, move := range [][2]string{{"runtimeHandler", "handler"}, {"overhead", "overhead"}, {"scheduling", "scheduling"}} {
		if value := manifest.Delete(spec, move[0]); value != nil {
			manifest.Set(e.obj, move[1], value)
			e.changed(value, "spec."+move[0], "moved to %s", move[1])
		}
	}
}

// bindingSubjects gives subjects the groups that v1 names them by. The user "*" of v1alpha1
// stands for all authenticated users, as in the conversion of Kubernetes' server.
func bindingSubjects(e *edit) {
	for i, subject := range manifest.Items(e.obj, "subjects") {
		path := fmt.Sprintf("subjects[%d]", i)
		kind, name := manifest.Text(subject, "kind"), manifest.Text(subject, "name")
		if version := manifest.Delete(subject, "apiVersion"); version != nil {
			if group := groupOfSubject(kind, version.Value); group != "" {
				manifest.SetAfter(subject, "kind", "apiGroup", manifest.String(group))
			}
			e.changed(subject, path, "apiVersion of the subject is apiGroup")
		}
		if kind == rbacv1.UserKind && name == "*" {
			at := manifest.Get(subject, "name")
			manifest.SetText(at, user.AllAuthenticated)
			manifest.SetText(manifest.Get(subject, "kind"), rbacv1.GroupKind)
			e.changed(at, path, "the user * of %s is the group %s", e.version, user.AllAuthenticated)
		}
	}
}

// groupOfSubject returns the group of a subject that had an apiVersion.
func groupOfSubject(kind, version string) string {
	switch kind {
	case rbacv1.ServiceAccountKind:
		return ""
	case rbacv1.UserKind, rbacv1.GroupKind:
		return rbacv1.GroupName
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return version // the server refuses it
	}
	return gv.Group
}
