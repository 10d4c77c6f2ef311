package adoption

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestDecide(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		rule             string
		ownerTerminates  bool
		controller       types.UID
		matches          bool
		objectTerminates bool
		want             Decision
	}{
		{"a controlled object that matches is kept", false, "me", true, false, Owned},
		{"also while both are being deleted", true, "me", true, true, Owned},
		{"a controlled object that no longer matches is released", false, "me", false, false, Release},
		{"an owner that is being deleted releases nothing", true, "me", false, false, Ignore},
		{"an object of another controller is ignored", false, "other", true, false, Ignore},
		{"an orphan that matches is adopted", false, "", true, false, Adopt},
		{"an orphan that does not match is ignored", false, "", false, false, Ignore},
		{"an orphan that is being deleted is ignored", false, "", true, true, Ignore},
		{"an owner that is being deleted adopts nothing", true, "", true, false, Ignore},
	} {
		owner := &metav1.ObjectMeta{UID: "me"}
		if tt.ownerTerminates {
			owner.DeletionTimestamp = &now
		}
		pod := &corev1.Pod{}
		if tt.controller != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: "not the controller"}, {UID: tt.controller, Controller: ptr.To(true)}}
		}
		if tt.matches {
			pod.Labels = map[string]string{"app": "web", "more": ""}
		}
		if tt.objectTerminates {
			pod.DeletionTimestamp = &now
		}
		if got := Decide(owner, labels.SelectorFromSet(labels.Set{"app": "web"}), pod); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.rule, got, tt.want)
		}
	}
}
