package image

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

type secretsFunc func(namespace, name string) (*corev1.Secret, error)

func (f secretsFunc) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return f(namespace, name)
}

func TestMissingPullSecretsAreNamedInAnEvent(t *testing.T) {
	from := secretsFunc(func(namespace, name string) (*corev1.Secret, error) {
		if strings.HasPrefix(name, "no") {
			return nil, errors.New("not found")
		}
		s := &corev1.Secret{}
		s.Namespace, s.Name = namespace, name
		return s, nil
	})
	for _, c := range []struct {
		names  string
		want   []string
		events []string
	}{
		{"", nil, nil},
		{"a  b", []string{"ns/a", "ns/b"}, nil},
		{"no1 a no2", []string{"ns/a"}, []string{"Warning FailedToRetrieveImagePullSecret p/: Unable to retrieve some image pull secrets (no1, no2); attempting to pull the image may not succeed."}},
	} {
		j := new(journal)
		p, _ := podOf("p", "", "")
		for _, name := range strings.Split(c.names, " ") {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
		var got []string
		for _, s := range New(Options{Recorder: j}).PullSecrets(t.Context(), p, from) {
			got = append(got, s.Namespace+"/"+s.Name)
		}
		want(t, "secrets", got, c.want...)
		want(t, "events", j.events, c.events...)
	}
}
