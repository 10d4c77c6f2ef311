package certificates

import (
	"context"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// The bounds of the life that a request may ask for, in seconds: signers of
// Kubernetes itself give a day at most, others 91.
const (
	minPodLife        int32 = 60 * 60
	maxKubernetesLife int32 = 24 * 60 * 60
	maxPodLife        int32 = 91 * 24 * 60 * 60
	defaultPodLife          = maxKubernetesLife
)

// maxUID is the greatest length of a UID.
const maxUID = 128

// podCertificateRequests lacks one rule: that the writer of the status has
// the permission to sign for the signer. That is the server's to check.
var podCertificateRequests = resource.Type[*certificatesv1.PodCertificateRequest]{
	Name: "podcertificaterequests", Namespaced: true,
	Versions: []resource.Version{
		resource.Convert(podRequestFromV1beta1, podRequestToV1beta1).ValidatedBy(validatePodRequestV1beta1),
	},
	Default: func(r *certificatesv1.PodCertificateRequest) {
		resource.Fill(&r.Spec.MaxExpirationSeconds, defaultPodLife)
	},
	PrepareUpdate: func(_ context.Context, _ *resource.Env, r, old *certificatesv1.PodCertificateRequest) {
		keepCarried(r, old)
	},
	ValidateCreate: validatePodRequest,
	ValidateUpdate: validatePodUpdate,
	Status:         true,
	StatusOnly:     true,
	RestrictStatus: func(env *resource.Env, r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
		return validatePodStatus(r, old, env.Clock.Now())
	},
	RequireVersion: true,
	Columns: []resource.Column[*certificatesv1.PodCertificateRequest]{
		resource.Name[*certificatesv1.PodCertificateRequest](),
		podColumn("PodName", "podName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.PodName }),
		podColumn("ServiceAccountName", "serviceAccountName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.ServiceAccountName }),
		podColumn("NodeName", "nodeName", func(s *certificatesv1.PodCertificateRequestSpec) string { return string(s.NodeName) }),
		podColumn("SignerName", "signerName", func(s *certificatesv1.PodCertificateRequestSpec) string { return s.SignerName }),
		{Name: "State", Description: "Is the request Pending, Issued, Denied, or Failed?", Value: func(r *certificatesv1.PodCertificateRequest) any {
			if state := stateOf(r); state != "" {
				return state
			}
			return "Pending"
		}},
		podColumn("UnverifiedUserAnnotations", "unverifiedUserAnnotations",
			func(s *certificatesv1.PodCertificateRequestSpec) string {
				return labels.FormatLabels(s.UnverifiedUserAnnotations)
			}),
	},
	Fields: map[string]func(*certificatesv1.PodCertificateRequest) string{
		"spec.signerName": func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.SignerName },
		"spec.podName":    func(r *certificatesv1.PodCertificateRequest) string { return r.Spec.PodName },
		"spec.nodeName":   func(r *certificatesv1.PodCertificateRequest) string { return string(r.Spec.NodeName) },
	},
}

func podColumn(name, property string, value func(*certificatesv1.PodCertificateRequestSpec) string) resource.Column[*certificatesv1.PodCertificateRequest] {
	return resource.Column[*certificatesv1.PodCertificateRequest]{
		Name: name, Description: certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()[property],
		Value: func(r *certificatesv1.PodCertificateRequest) any { return value(&r.Spec) },
	}
}

// validatePodRequest validates a new request of v1.
func validatePodRequest(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	errs := append(validatePodSpec(r), validateStub(field.NewPath("spec", "stubPKCS10Request"), r.Spec.StubPKCS10Request)...)
	for _, annotation := range []string{keyAnnotation, proofAnnotation} {
		if _, ok := r.Annotations[annotation]; ok {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(annotation), "has a value of requests of v1beta1; create the request in v1beta1, or leave the annotation out"))
		}
	}
	return errs
}

// validatePodUpdate allows only metadata to change.
func validatePodUpdate(r, old *certificatesv1.PodCertificateRequest) field.ErrorList {
	return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
}

// validatePodSpec validates the fields of a new request but those of its key.
func validatePodSpec(r *certificatesv1.PodCertificateRequest) field.ErrorList {
	spec, path := &r.Spec, field.NewPath("spec")
	errs := validateSigner(path.Child("signerName"), spec.SignerName)
	errs = append(errs, resource.Invalid(path.Child("podName"), spec.PodName, apivalidation.NameIsDNSSubdomain(spec.PodName, false))...)
	errs = append(errs, resource.Invalid(path.Child("serviceAccountName"), spec.ServiceAccountName, apivalidation.ValidateServiceAccountName(spec.ServiceAccountName, false))...)
	errs = append(errs, resource.Invalid(path.Child("nodeName"), spec.NodeName, apivalidation.NameIsDNSSubdomain(string(spec.NodeName), false))...)
	errs = append(errs, validateUID(path.Child("podUID"), spec.PodUID)...)
	errs = append(errs, validateUID(path.Child("serviceAccountUID"), spec.ServiceAccountUID)...)
	errs = append(errs, validateUID(path.Child("nodeUID"), spec.NodeUID)...)
	errs = append(errs, validatePodLife(path.Child("maxExpirationSeconds"), spec)...)
	annotations := path.Child("unverifiedUserAnnotations")
	for key := range spec.UnverifiedUserAnnotations {
		errs = append(errs, validation.IsDomainPrefixedKey(annotations, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(spec.UnverifiedUserAnnotations) != nil {
		errs = append(errs, field.TooLong(annotations, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

func validateUID(path *field.Path, uid types.UID) field.ErrorList {
	switch {
	case uid == "":
		return field.ErrorList{field.Invalid(path, uid, "must not be empty")}
	case len(uid) > maxUID:
		return field.ErrorList{field.TooLong(path, uid, maxUID)}
	}
	return nil
}

func validatePodLife(path *field.Path, spec *certificatesv1.PodCertificateRequestSpec) field.ErrorList {
	limit := maxPodLife
	if domain, _, _ := strings.Cut(spec.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		limit = maxKubernetesLife
	}
	if life := *spec.MaxExpirationSeconds; life < minPodLife || life > limit {
		return field.ErrorList{field.Invalid(path, life, fmt.Sprintf("must be in the range [%d, %d]", minPodLife, limit))}
	}
	return nil
}

// stateOf returns the final state of a request, "" if it has none.
func stateOf(r *certificatesv1.PodCertificateRequest) string {
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed:
			return c.Type
		}
	}
	return ""
}

// validatePodStatus allows a request to reach one final state, once.
func validatePodStatus(r, old *certificatesv1.PodCertificateRequest, now time.Time) field.ErrorList {
	path := field.NewPath("status")
	if errs := validatePodConditions(path.Child("conditions"), r.Status.Conditions); len(errs) > 0 {
		return errs
	}
	unchanged := apiequality.Semantic.DeepEqual(r.Status, old.Status)
	switch state := stateOf(r); {
	case stateOf(old) != "" && !unchanged:
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "immutable after PodCertificateRequest is issued, denied, or failed")}
	case unchanged:
		return nil
	case state == "":
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)}
	case state == certificatesv1.PodCertificateRequestConditionTypeIssued:
		return validateIssued(path, r, now)
	case !apiequality.Semantic.DeepEqual(r.Status, certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions}):
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, "non-condition status fields must be empty when denying or failing the PodCertificateRequest")}
	}
	return nil
}

func validatePodConditions(path *field.Path, conditions []metav1.Condition) field.ErrorList {
	errs := metav1validation.ValidateConditions(conditions, path)
	for i, c := range conditions {
		errs = append(errs, resource.OneOf(path.Index(i).Child("type"), c.Type, certificatesv1.PodCertificateRequestConditionTypeIssued,
			certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed)...)
		errs = append(errs, resource.OneOf(path.Index(i).Child("status"), c.Status, metav1.ConditionTrue)...)
		if i > 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
	}
	return errs
}
