package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"svc.dev/svc/apis/resource"
)

const (
	// minExpiration is the shortest spec.expirationSeconds.
	minExpiration = 600
	// legacySigner is a signer that v1 refuses.
	legacySigner = "kubernetes.io/legacy-unknown"
)

var certificateSigningRequests = resource.Type[*certificatesv1.CertificateSigningRequest]{
	Name: "certificatesigningrequests", ShortNames: []string{"csr"},
	Versions: []resource.Version{
		resource.Convert(requestFromV1beta1, requestToV1beta1).DefaultedBy(defaultRequestV1beta1).
			ValidatedBy(validateRequestV1beta1).ViewsValidatedBy(validateViewV1beta1),
	},
	NameRule:      resource.PathSegmentName,
	PrepareCreate: signWithUser,
	PrepareUpdate: func(_ context.Context, _ *resource.Env, r, old *certificatesv1.CertificateSigningRequest) {
		r.Spec = old.Spec
	},
	// The spec does not change, and a client of v1beta1 may have written one that v1
	// refuses.
	ValidateCreate: validateRequest,
	Status:         true,
	PrepareStatus:  prepareStatus,
	ValidateStatus: func(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
		return append(validateStatus(r, old, asStored(old)), validateNoApproval(r, old)...)
	},
	Views: []resource.View[*certificatesv1.CertificateSigningRequest]{{
		Name:    "approval",
		Prepare: prepareApproval,
		Validate: func(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
			return validateStatus(r, old, asStored(old))
		},
		Resets: []string{"spec", "status.certificate"},
	}},
	Columns: []resource.Column[*certificatesv1.CertificateSigningRequest]{
		resource.Name[*certificatesv1.CertificateSigningRequest](),
		resource.Age[*certificatesv1.CertificateSigningRequest](),
		{Name: "SignerName", Description: requestDoc["signerName"], Since: 18,
			Value: func(r *certificatesv1.CertificateSigningRequest) any { return r.Spec.SignerName }},
		{Name: "Requestor", Description: requestDoc["username"],
			Value: func(r *certificatesv1.CertificateSigningRequest) any { return r.Spec.Username }},
		{Name: "RequestedDuration", Description: requestDoc["expirationSeconds"], Since: 22, Value: func(r *certificatesv1.CertificateSigningRequest) any {
			if r.Spec.ExpirationSeconds == nil {
				return "<none>"
			}
			return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
		}},
		{Name: "Condition", Description: certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()["conditions"], Value: conditionCell},
	},
	Fields: map[string]func(*certificatesv1.CertificateSigningRequest) string{
		"spec.signerName": func(r *certificatesv1.CertificateSigningRequest) string { return r.Spec.SignerName },
	},
}

var requestDoc = certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()

// signWithUser sets the fields of the request's user from authentication. Signers
// rely on them, so values of the client are dropped.
func signWithUser(ctx context.Context, _ *resource.Env, r *certificatesv1.CertificateSigningRequest) {
	r.Spec.Username, r.Spec.UID, r.Spec.Groups, r.Spec.Extra = "", "", nil, nil
	user, ok := request.UserFrom(ctx)
	if !ok {
		return
	}
	r.Spec.Username, r.Spec.UID, r.Spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
	for key, values := range user.GetExtra() {
		if r.Spec.Extra == nil {
			r.Spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		r.Spec.Extra[key] = values
	}
}

// usages are what a certificate may be used for, in the order of messages.
var usages = []certificatesv1.KeyUsage{
	certificatesv1.UsageAny, certificatesv1.UsageCertSign, certificatesv1.UsageClientAuth, certificatesv1.UsageCodeSigning,
	certificatesv1.UsageContentCommitment, certificatesv1.UsageCRLSign, certificatesv1.UsageDataEncipherment,
	certificatesv1.UsageDecipherOnly, certificatesv1.UsageDigitalSignature, certificatesv1.UsageEmailProtection,
	certificatesv1.UsageEncipherOnly, certificatesv1.UsageIPsecEndSystem, certificatesv1.UsageIPsecTunnel,
	certificatesv1.UsageIPsecUser, certificatesv1.UsageKeyAgreement, certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageMicrosoftSGC, certificatesv1.UsageNetscapeSGC, certificatesv1.UsageOCSPSigning,
	certificatesv1.UsageSMIME, certificatesv1.UsageServerAuth, certificatesv1.UsageSigning, certificatesv1.UsageTimestamping,
}

func validateRequest(r *certificatesv1.CertificateSigningRequest) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateAnyRequest(r)
	for i, usage := range r.Spec.Usages {
		errs = append(errs, resource.OneOf(path.Child("usages").Index(i), usage, usages...)...)
		if slices.Contains(r.Spec.Usages[:i], usage) {
			errs = append(errs, field.Duplicate(path.Child("usages").Index(i), usage))
		}
	}
	if r.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(path.Child("signerName"), r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	}
	return errs
}

// validateAnyRequest has the rules that v1 and v1beta1 share.
func validateAnyRequest(r *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if err := checkPKCS10(r.Spec.Request); err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), r.Spec.Request, err.Error()))
	}
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(path.Child("usages"), ""))
	}
	errs = append(errs, validateSigner(path.Child("signerName"), r.Spec.SignerName)...)
	if s := r.Spec.ExpirationSeconds; s != nil && *s < minExpiration {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// checkPKCS10 requires a PEM block with a certificate request that its own key
// has signed.
func checkPKCS10(data []byte) error {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	return csr.CheckSignature()
}

// prepareStatus keeps the conditions Approved and Denied as they are in an update
// of the status.
func prepareStatus(env *resource.Env, r, old *certificatesv1.CertificateSigningRequest) {
	for _, condition := range approvalConditions {
		is, was := conditionsOf(r, condition), conditionsOf(old, condition)
		if len(is) != len(was) {
			continue // refused by validation
		}
		for i := range is {
			*is[i] = *was[i]
		}
	}
	stampConditions(r, old, metav1.NewTime(env.Clock.Now()))
}

// prepareApproval copies from old all but the conditions.
func prepareApproval(env *resource.Env, r, old *certificatesv1.CertificateSigningRequest) {
	stampConditions(r, old, metav1.NewTime(env.Clock.Now()))
	r.Spec = old.Spec
	r.Status.Certificate = old.Status.Certificate
}

// stampConditions sets the times that clients leave out. The transition time of a
// condition changes only if its status does.
func stampConditions(r, old *certificatesv1.CertificateSigningRequest, now metav1.Time) {
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, was := range conditionsOf(old, c.Type) {
			if was.Status == c.Status && !was.LastTransitionTime.IsZero() {
				c.LastTransitionTime = was.LastTransitionTime
				break
			}
		}
	}
}

// approvalConditions are the conditions that only the subresource approval may set.
var approvalConditions = []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied}

// conditionsOf returns the conditions of a type. They are the request's own, not
// copies.
func conditionsOf(r *certificatesv1.CertificateSigningRequest, t certificatesv1.RequestConditionType) []*certificatesv1.CertificateSigningRequestCondition {
	var found []*certificatesv1.CertificateSigningRequestCondition
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			found = append(found, &r.Status.Conditions[i])
		}
	}
	return found
}

// statusLeniency is what of a status is accepted against the rules.
type statusLeniency struct {
	bothVerdicts, sameTypes, emptyTypes, anyCertificate bool
}

// asStored is the leniency for an update of a request: a client of v1beta1 may have
// stored what v1 refuses.
func asStored(old *certificatesv1.CertificateSigningRequest) statusLeniency {
	var l statusLeniency
	seen := map[certificatesv1.RequestConditionType]bool{}
	for _, c := range old.Status.Conditions {
		l.sameTypes = l.sameTypes || seen[c.Type]
		l.emptyTypes = l.emptyTypes || c.Type == ""
		seen[c.Type] = true
	}
	l.bothVerdicts = seen[certificatesv1.CertificateApproved] && seen[certificatesv1.CertificateDenied]
	return l
}

// validateStatus has the rules that the subresources status and approval share.
func validateStatus(r, old *certificatesv1.CertificateSigningRequest, l statusLeniency) field.ErrorList {
	path := field.NewPath("status", "conditions")
	errs := validateConditions(path, r, l)
	for _, t := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if len(conditionsOf(r, t)) < len(conditionsOf(old, t)) {
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not remove a condition of type %q", t)))
		}
	}
	if l.anyCertificate || bytes.Equal(r.Status.Certificate, old.Status.Certificate) {
		return errs
	}
	certificate := field.NewPath("status", "certificate")
	if len(old.Status.Certificate) > 0 {
		errs = append(errs, field.Forbidden(certificate, "updates may not modify existing certificate content"))
	}
	if err := checkCertificates(r.Status.Certificate); err != nil {
		errs = append(errs, field.Invalid(certificate, "<certificate data>", err.Error()))
	}
	return errs
}

// validateNoApproval forbids changes of Approved and Denied, which need the
// permission for the subresource approval.
func validateNoApproval(r, old *certificatesv1.CertificateSigningRequest) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "conditions")
	for _, t := range approvalConditions {
		is, was := conditionsOf(r, t), conditionsOf(old, t)
		switch {
		case len(is) > len(was):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not add a condition of type %q", t)))
		case len(is) == len(was) && !apiequality.Semantic.DeepEqual(is, was):
			errs = append(errs, field.Forbidden(path, fmt.Sprintf("updates may not modify a condition of type %q", t)))
		}
	}
	return errs
}

func validateConditions(path *field.Path, r *certificatesv1.CertificateSigningRequest, l statusLeniency) field.ErrorList {
	var errs field.ErrorList
	var seen []certificatesv1.RequestConditionType
	for i, c := range r.Status.Conditions {
		at := path.Index(i)
		if c.Type == "" && !l.emptyTypes {
			errs = append(errs, field.Required(at.Child("type"), ""))
		}
		if slices.Contains(seen, c.Type) && !l.sameTypes {
			errs = append(errs, field.Duplicate(at.Child("type"), c.Type))
		}
		seen = append(seen, c.Type)
		errs = append(errs, validateConditionStatus(at.Child("status"), c)...)
	}
	approved, denied := slices.Index(seen, certificatesv1.CertificateApproved), slices.Index(seen, certificatesv1.CertificateDenied)
	if approved >= 0 && denied >= 0 && !l.bothVerdicts {
		errs = append(errs, field.Invalid(path, seen[max(approved, denied)], "Approved and Denied conditions are mutually exclusive"))
	}
	return errs
}

// validateConditionStatus requires the status True for Approved, Denied and Failed.
func validateConditionStatus(path *field.Path, c certificatesv1.CertificateSigningRequestCondition) field.ErrorList {
	if c.Status == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	switch c.Type {
	case certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
		return resource.OneOf(path, c.Status, corev1.ConditionTrue)
	}
	return resource.OneOf(path, c.Status, corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown)
}

// checkCertificates requires PEM blocks of certificates, and nothing else.
func checkCertificates(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	blocks := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("only CERTIFICATE PEM blocks are allowed, found %q", block.Type)
		}
		if len(block.Headers) > 0 {
			return errors.New("no PEM block headers are permitted")
		}
		certificates, err := x509.ParseCertificates(block.Bytes)
		if err != nil {
			return err
		}
		if len(certificates) == 0 {
			return errors.New("found CERTIFICATE PEM block containing 0 certificates")
		}
		blocks++
	}
	if blocks == 0 {
		return errors.New("must contain at least one CERTIFICATE PEM block")
	}
	return nil
}

func conditionCell(r *certificatesv1.CertificateSigningRequest) any {
	cell := "Pending"
	if len(conditionsOf(r, certificatesv1.CertificateApproved)) > 0 {
		cell = "Approved"
	}
	if len(conditionsOf(r, certificatesv1.CertificateDenied)) > 0 {
		cell = "Denied"
	}
	if len(conditionsOf(r, certificatesv1.CertificateFailed)) > 0 {
		cell += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		cell += ",Issued"
	}
	return cell
}
