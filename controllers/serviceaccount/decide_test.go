package serviceaccount

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWanted(t *testing.T) {
	now := metav1.Now()
	for _, test := range []struct {
		rule    string
		phase   corev1.NamespacePhase
		deleted *metav1.Time
		want    bool
	}{
		{"an active namespace has the service account", corev1.NamespaceActive, nil, true},
		{"a namespace without a phase gets it later", "", nil, false},
		{"a terminating namespace does not get it", corev1.NamespaceTerminating, &now, false},
		{"nor does one whose phase is not updated yet", corev1.NamespaceActive, &now, false},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: test.deleted}, Status: corev1.NamespaceStatus{Phase: test.phase}}
		if got := wanted(ns); got != test.want {
			t.Errorf("%s: got %v, want %v", test.rule, got, test.want)
		}
	}
}
