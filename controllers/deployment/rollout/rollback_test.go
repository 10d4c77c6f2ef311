package rollout

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRollBackByAnnotation(t *testing.T) {
	for _, test := range []struct {
		name   string
		to     string
		change func(*appsv1.Deployment)
		want   string
	}{
		{"to a revision", "1", nil, "image 1 because first, Normal DeploymentRollback"},
		{"to the last revision", "0", nil, "image 2 because second, Normal DeploymentRollback"},
		{"to the present revision", "3", nil, "image 3 because third, Warning DeploymentRollbackTemplateUnchanged"},
		{"to an unknown revision", "7", nil, "image 3 because third, Warning DeploymentRollbackRevisionNotFound"},
		{"to what is no revision", "x", nil, "none"},
		{"without the annotation", "", nil, "none"},
		{"while paused", "1", func(d *appsv1.Deployment) { d.Spec.Paused = true }, "none"},
		{"while being deleted", "1", func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{} }, "none"},
		{"before the replica set of the template exists", "1", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "4" }, "none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newModel(t)
			for i, cause := range []string{"first", "second", "third"} {
				m.edit("image", fmt.Sprint(i+1))
				m.edit("annotation", "kubernetes.io/change-cause:"+cause)
				m.rollOut()
			}
			d := m.d.DeepCopy()
			if test.to != "" {
				d.Annotations[appsv1.DeprecatedRollbackTo] = test.to
			}
			if test.change != nil {
				test.change(d)
			}
			got := "none"
			if b := RollBack(d, m.sets); b != nil {
				template := b.Deployment.Spec.Template
				got = fmt.Sprintf("image %s because %s, %s %s", template.Spec.Containers[0].Image, b.Deployment.Annotations["kubernetes.io/change-cause"], b.EventType, b.Reason)
				if _, ok := b.Deployment.Annotations[appsv1.DeprecatedRollbackTo]; ok {
					t.Error("the annotation stays")
				}
				if _, ok := template.Labels[hashLabel]; ok {
					t.Error("the template has the hash of a replica set")
				}
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

func TestThereIsNoLastRevisionOfTheFirst(t *testing.T) {
	m := newModel(t)
	m.rollOut()
	m.d.Annotations[appsv1.DeprecatedRollbackTo] = "0"
	if b := RollBack(m.d, m.sets); b == nil || b.Message != "Unable to find last revision." {
		t.Errorf("%v", b)
	}
}
