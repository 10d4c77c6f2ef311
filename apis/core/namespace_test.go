package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

const namespace = `
metadata: {name: team-a}
spec: {finalizers: [kubernetes]}
`

func TestNamespaceRules(t *testing.T) {
	resourcetest.Rules(t, namespaces, namespace, []resourcetest.Rule{
		{Name: "a name that is a DNS label"},
		{Name: "a name has no dots", Change: `metadata: {name: a.b}`, Want: []string{
			`metadata.name: Invalid value: "a.b": must not contain dots`}},
		{Name: "a finalizer has a domain", Change: `spec: {finalizers: [mine, example.com/mine]}`, Want: []string{
			`spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
		{Name: "an active namespace is not being deleted", Status: true, Change: `status: {phase: Terminating}`, Want: []string{
			"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"}},
		{Name: "a namespace that is being deleted is terminating", Status: true, Change: `{metadata: {deletionTimestamp: "2024-01-01T00:00:00Z"}, status: {phase: Active}}`,
			Want: []string{"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"}},
		{Name: "finalize removes finalizers", View: "finalize", Change: `spec: {finalizers: null}`},
		{Name: "finalize adds finalizers with a domain", View: "finalize", Change: `spec: {finalizers: [mine]}`, Want: []string{
			`spec.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
	})
}

func TestNamespaceLife(t *testing.T) {
	k := namespaces.Kind()
	made := resourcetest.Object(t, k, `{metadata: {generateName: a-}, spec: {finalizers: [example.com/b]}, status: {phase: Terminating}}`).(*corev1.Namespace)
	made.Name = "a-1"
	k.PrepareCreate(t.Context(), nil, made)
	if made.Labels[corev1.LabelMetadataName] != "a-1" || made.Status.Phase != corev1.NamespaceActive || len(made.Spec.Finalizers) != 2 {
		t.Errorf("a new namespace is %+v", made)
	}

	updated := made.DeepCopy()
	updated.Spec.Finalizers = nil
	if k.PrepareUpdate(t.Context(), nil, updated, made); len(updated.Spec.Finalizers) != 2 {
		t.Error("an update removed the finalizers")
	}
	finalized := made.DeepCopy()
	finalized.Spec.Finalizers, finalized.Status.Phase = nil, ""
	if k.Views[0].Prepare(nil, finalized, made); finalized.Status.Phase != corev1.NamespaceActive || k.Held(finalized) || !k.Held(made) {
		t.Errorf("a finalized namespace is %+v", finalized)
	}
	if k.Terminate(made); made.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("a namespace that is being deleted is %s", made.Status.Phase)
	}
}
