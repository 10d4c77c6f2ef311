package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// maxTrustBundle is the greatest size of a bundle, in bytes.
const maxTrustBundle = 1 << 20

var clusterTrustBundles = resource.Type[*certificatesv1.ClusterTrustBundle]{
	Name:     "clustertrustbundles",
	Versions: []resource.Version{resource.Alike[certificatesv1.ClusterTrustBundle, certificatesv1beta1.ClusterTrustBundle](), resource.Alike[certificatesv1.ClusterTrustBundle, certificatesv1alpha1.ClusterTrustBundle]()},
	NameRule: resource.PathSegmentName, // and what Validate says, which knows the signer
	Validate: validateBundle,
	ValidateUpdate: func(b, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
		return apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))
	},
	RequireVersion: true,
	Columns: []resource.Column[*certificatesv1.ClusterTrustBundle]{
		resource.Name[*certificatesv1.ClusterTrustBundle](),
		{Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"],
			Value: func(b *certificatesv1.ClusterTrustBundle) any {
				if b.Spec.SignerName == "" {
					return "<none>"
				}
				return b.Spec.SignerName
			}},
	},
	Fields: map[string]func(*certificatesv1.ClusterTrustBundle) string{
		"spec.signerName": func(b *certificatesv1.ClusterTrustBundle) string { return b.Spec.SignerName },
	},
}

func validateBundle(b *certificatesv1.ClusterTrustBundle) field.ErrorList {
	var errs field.ErrorList
	if b.GenerateName != "" {
		errs = append(errs, resource.Invalid(field.NewPath("metadata", "generateName"), b.GenerateName, bundleNameFaults(b.GenerateName, b.Spec.SignerName, true))...)
	}
	if b.Name != "" {
		errs = append(errs, resource.Invalid(field.NewPath("metadata", "name"), b.Name, bundleNameFaults(b.Name, b.Spec.SignerName, false))...)
	}
	if b.Spec.SignerName != "" {
		errs = append(errs, validateSigner(field.NewPath("spec", "signerName"), b.Spec.SignerName)...)
	}
	return append(errs, validateAnchors(field.NewPath("spec", "trustBundle"), b.Spec.TrustBundle)...)
}

// bundleNameFaults requires the signer's name as the prefix of its bundles'
// names, so that a role can be granted for them.
func bundleNameFaults(name, signer string, isPrefix bool) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, isPrefix)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	if !strings.HasPrefix(name, prefix) {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(strings.TrimPrefix(name, prefix), isPrefix)
}

func validateAnchors(path *field.Path, bundle string) field.ErrorList {
	if len(bundle) > maxTrustBundle {
		return field.ErrorList{field.TooLong(path, "", maxTrustBundle)}
	}
	var errs field.ErrorList
	invalid := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	entries := map[string][]int{}
	i := 0
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		if fault := anchorFault(block); fault != "" {
			invalid("entry %d %s", i, fault)
		}
		entries[string(block.Bytes)] = append(entries[string(block.Bytes)], i)
		i++
	}
	if len(errs) > 0 {
		return errs
	}
	if len(entries) == 0 {
		invalid("at least one trust anchor must be provided")
	}
	for _, indices := range entries {
		if len(indices) > 1 {
			invalid("duplicate trust anchor (indices %v)", indices)
		}
	}
	return errs
}

// anchorFault returns why a PEM block is not a trust anchor, "" if it is one.
func anchorFault(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
