package claim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestWhatIsDoneWithAnObject(t *testing.T) {
	now := metav1.Now()
	for _, tt := range []struct {
		rule       string
		ownerGoes  bool
		controller types.UID
		matches    bool
		objectGoes bool
		want       Decision
	}{
		{"it is the owner's", false, "me", true, false, Owned},
		{"it is the owner's, though both go", true, "me", true, true, Owned},
		{"it does not match any more", false, "me", false, false, Release},
		{"an owner that goes releases nothing", true, "me", false, false, Ignore},
		{"another one controls it", false, "other", true, false, Ignore},
		{"an orphan that matches", false, "", true, false, Adopt},
		{"an orphan that does not match", false, "", false, false, Ignore},
		{"an orphan that goes", false, "", true, true, Ignore},
		{"an owner that goes adopts nothing", true, "", true, false, Ignore},
	} {
		owner := &metav1.ObjectMeta{UID: "me"}
		if tt.ownerGoes {
			owner.DeletionTimestamp = &now
		}
		pod := &corev1.Pod{}
		if tt.controller != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: "not the controller"}, {UID: tt.controller, Controller: ptr.To(true)}}
		}
		if tt.matches {
			pod.Labels = map[string]string{"app": "web", "more": ""}
		}
		if tt.objectGoes {
			pod.DeletionTimestamp = &now
		}
		if got := Decide(owner, labels.SelectorFromSet(labels.Set{"app": "web"}), pod); got != tt.want {
			t.Errorf("%s: got %d, want %d", tt.rule, got, tt.want)
		}
	}
}
