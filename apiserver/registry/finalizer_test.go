package registry_test

import (
	"net/http"
	"testing"

	"svc.dev/svc/apiserver/registry/registrytest"
)

func TestAFinalizerIsKubernetesOwnOrNamesADomain(t *testing.T) {
	s := registrytest.Start(t, set())
	const problem = `metadata.finalizers[1]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified`
	s.Do(http.MethodPost, sets, `{metadata: {name: a, finalizers: [orphan, mine]}}`).Want(http.StatusUnprocessableEntity, problem)
	s.Do(http.MethodPost, sets, `{metadata: {name: a, finalizers: [foregroundDeletion, example.com/mine]}}`).Want(http.StatusCreated)
	for _, path := range []string{aSet, aSet + "/status"} {
		s.Patch("merge", path, `{metadata: {finalizers: [orphan, mine]}}`).Want(http.StatusUnprocessableEntity, problem)
	}
}

func TestAGenerateNameIsTheBeginningOfANameOnUpdateToo(t *testing.T) {
	s := registrytest.Start(t, set())
	s.Do(http.MethodPost, sets, `{metadata: {name: a}}`).Want(http.StatusCreated)
	s.Patch("merge", aSet, `{metadata: {generateName: a_}}`).Want(http.StatusUnprocessableEntity, `metadata.generateName: Invalid value: \"a_\": a lowercase RFC 1123 subdomain`)
	s.Patch("merge", aSet, `{metadata: {generateName: a-}}`).Want(http.StatusOK)
}

func TestAFinalizerIsFreeWhereTheDeclarationSaysSo(t *testing.T) {
	d := set()
	d.AnyFinalizer = true
	s := registrytest.Start(t, d)
	s.Do(http.MethodPost, sets, `{metadata: {name: a, finalizers: [mine]}}`).Want(http.StatusCreated)
	s.Patch("merge", aSet, `{metadata: {finalizers: [mine, yours]}}`).Want(http.StatusOK)
}
