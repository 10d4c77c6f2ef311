package apiserver_test

import (
	"net/http"
	"testing"

	"svc.dev/svc/apiserver/release"
)

func TestAnObjectThatCannotBeReadIsDeletedAtTheReleasesWithTheGate(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps/a"
	for minor, unsafe := range map[int]bool{28: false, 36: false, 37: true} {
		o, member := newOptions(t)
		o.Release = release.Release{Major: 1, Minor: minor}
		r := start(t, o)
		if _, err := member.Client().Put(t.Context(), "/registry/configmaps/default/a", "garbage"); err != nil {
			t.Fatal(err)
		}
		if code, body := r.do(t, http.MethodDelete, path, "", false); code != http.StatusInternalServerError {
			t.Errorf("1.%d: a deletion answers %d %s", minor, code, body)
		}
		code, body := r.do(t, http.MethodDelete, path+"?ignoreStoreReadErrorWithClusterBreakingPotential=true", "", false)
		if unsafe && code != http.StatusOK || !unsafe && code != http.StatusInternalServerError {
			t.Errorf("1.%d: a deletion without reading it answers %d %s", minor, code, body)
		}
		kept, err := member.Client().Get(t.Context(), "/registry/configmaps/default/a")
		if err != nil || (kept.Count == 0) != unsafe {
			t.Errorf("1.%d: %d objects are left, %v", minor, kept.Count, err)
		}
		r.stop(t)
	}
}
