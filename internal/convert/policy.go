package convert

import (
	"fmt"
	"slices"
	"strings"

	"svc.dev/svc/internal/manifest"
)

// disruptionBudget keeps that an empty selector selects nothing.
func disruptionBudget(e *edit) {
	spec := manifest.Get(e.obj, "spec")
	selector := manifest.Get(spec, "selector")
	if selector == nil || len(manifest.Items(selector, "matchExpressions")) > 0 {
		return
	}
	if labels := manifest.Get(selector, "matchLabels"); labels != nil && len(labels.Content) > 0 || manifest.IsNull(selector) {
		return
	}
	if e.patch && len(selector.Content) > 0 {
		e.decide(manifest.Key(spec, "selector"), "spec.selector", "it may leave the object with an empty selector, which selects no pods in policy/v1beta1 and all pods in policy/v1: write null to protect no pods")
		return
	}
	e.changed(manifest.Key(spec, "selector"), "spec.selector", "removed: empty, it selects no pods in policy/v1beta1 and all pods in policy/v1, and without it none; write {} to protect all pods")
	e.differs(manifest.Key(spec, "selector"), "spec.selector", "empty, it selects no pods in policy/v1beta1 and all pods in policy/v1")
	manifest.Delete(spec, "selector")
}

// webhooks writes out the defaults that v1 changes.
func webhooks(e *edit) {
	var names []string
	for i, hook := range manifest.Items(e.obj, "webhooks") {
		path := fmt.Sprintf("webhooks[%d]", i)
		e.keep(hook, path, "failurePolicy", manifest.String("Ignore"), "it is Fail in v1")
		e.keep(hook, path, "matchPolicy", manifest.String("Exact"), "it is Equivalent in v1")
		e.keep(hook, path, "timeoutSeconds", manifest.Int(30), "it is 10 in v1")
		if !e.patch && len(manifest.Items(hook, "admissionReviewVersions")) == 0 {
			manifest.Delete(hook, "admissionReviewVersions")
			e.keep(hook, path, "admissionReviewVersions", manifest.List(manifest.String("v1beta1")), "it is required in v1")
		}
		if effects := manifest.Text(hook, "sideEffects"); effects != "None" && effects != "NoneOnDryRun" && (effects != "" || !e.patch) {
			at := manifest.Get(hook, "sideEffects")
			if at == nil {
				at = hook
			}
			e.decide(at, path+".sideEffects", "must be None or NoneOnDryRun in v1: only the author of the webhook knows which; it must not act on dry runs")
		}
		name := manifest.Text(hook, "name")
		if slices.Contains(names, name) {
			e.decide(manifest.Get(hook, "name"), path+".name", "must be unique in v1: %s is there twice", name)
		}
		names = append(names, name)
	}
}

// policyBinding writes out what v1beta1 requires: the default for absent parameters, and the
// action of release 1.26, whose bindings have none.
func policyBinding(e *edit) {
	spec := manifest.Get(e.obj, "spec")
	const required = "it is required in v1beta1 and v1"
	if e.from.Kind == "ValidatingAdmissionPolicyBinding" && len(manifest.Items(spec, "validationActions")) == 0 && !e.patch {
		manifest.Delete(spec, "validationActions")
		e.keep(spec, "spec", "validationActions", manifest.List(manifest.String("Deny")), required)
	}
	e.keep(manifest.Get(spec, "paramRef"), "spec.paramRef", "parameterNotFoundAction", manifest.String("Deny"), required)
}

// knownUsages are the usages of keys that certificates.k8s.io has.
const knownUsages = "signing,digital signature,content commitment,key encipherment,key agreement,data encipherment,cert sign,crl sign,encipher only,decipher only,any,server auth,client auth,code signing,email protection,s/mime,ipsec end system,ipsec tunnel,ipsec user,timestamping,ocsp signing,microsoft sgc,netscape sgc"

// signingRequest asks for the signer, and writes out the default usages.
func signingRequest(e *edit) {
	spec := manifest.Get(e.obj, "spec")
	if e.patch {
		return
	}
	if manifest.IsNull(spec) {
		e.decide(e.obj, "spec", "the object has no spec")
		return
	}
	switch signer := manifest.Text(spec, "signerName"); signer {
	case "":
		e.decide(manifest.Key(e.obj, "spec"), "spec.signerName", "required in v1: name the signer, such as kubernetes.io/kube-apiserver-client")
	case "kubernetes.io/legacy-unknown":
		e.decide(manifest.Get(spec, "signerName"), "spec.signerName", "%s is not allowed in v1: name the signer", signer)
	}
	if len(manifest.Items(spec, "usages")) == 0 {
		manifest.Delete(spec, "usages")
		manifest.Set(spec, "usages", manifest.List(manifest.String("digital signature"), manifest.String("key encipherment")))
		e.changed(manifest.Key(e.obj, "spec"), "spec.usages", "required in v1: the default of %s is written out", e.version)
		return
	}
	usages := manifest.Get(spec, "usages")
	seen := map[string]bool{}
	kept := usages.Content[:0:0]
	for i, usage := range usages.Content {
		switch {
		case seen[usage.Value]:
			e.changed(usage, fmt.Sprintf("spec.usages[%d]", i), "removed: v1 allows no duplicates")
			continue
		case !slices.Contains(strings.Split(knownUsages, ","), usage.Value):
			e.decide(usage, fmt.Sprintf("spec.usages[%d]", i), "%q is no known usage, which v1 refuses", usage.Value)
		}
		seen[usage.Value] = true
		kept = append(kept, usage)
	}
	usages.Content = kept
}
