package resource

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

func TestAQueryFillsInOptions(t *testing.T) {
	for _, test := range []struct {
		query string
		want  runtime.Object
	}{
		{"command=ls&command=-l&stdin=true&stdout=1&stderr=0&tty=false&container=c", &corev1.PodExecOptions{Command: []string{"ls", "-l"}, Stdin: true, Stdout: true, Container: "c"}},
		{"follow&tailLines=3&sinceTime=2026-01-02T03:04:05Z&stream=Stdout&unknown=x", &corev1.PodLogOptions{
			Follow: true, TailLines: ptr.To[int64](3), Stream: ptr.To("Stdout"),
			SinceTime: ptr.To(metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))),
		}},
		{"ports=80&ports=443", &corev1.PodPortForwardOptions{Ports: []int32{80, 443}}},
		{"path=/a/b", &corev1.PodProxyOptions{Path: "/a/b"}},
		{"", &corev1.NodeProxyOptions{}},
	} {
		query, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		got := test.want.DeepCopyObject()
		switch o := got.(type) {
		case *corev1.PodExecOptions:
			*o = corev1.PodExecOptions{}
		case *corev1.PodLogOptions:
			*o = corev1.PodLogOptions{}
		case *corev1.PodPortForwardOptions:
			*o = corev1.PodPortForwardOptions{}
		case *corev1.PodProxyOptions:
			*o = corev1.PodProxyOptions{}
		}
		if err := decodeQuery(query, got); err != nil {
			t.Errorf("%s: %v", test.query, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.query, diff)
		}
	}
}

func TestAQueryThatMakesNoSenseNamesItsParameter(t *testing.T) {
	for query, want := range map[string]string{
		"tailLines=many":                  `parameter tailLines: invalid value "many": must be an integer`,
		"limitBytes=99999999999999999999": `parameter limitBytes: invalid value "99999999999999999999": must be an integer`,
		"sinceTime=yesterday":             `parameter sinceTime: invalid value "yesterday": must be a time, such as 2006-01-02T15:04:05Z`,
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if err := decodeQuery(values, &corev1.PodLogOptions{}); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", query, err, want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"command=ls&command=-l&stdin&tty=0", "follow&tailLines=-3&sinceTime=2026-01-02T03:04:05%2B23:59&stream=x",
		"ports=80&ports=-1", "path=%2e%2e/a", "apiVersion=v1&kind=x&TypeMeta=y", "sinceSeconds=9223372036854775807&limitBytes=",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		query, _ := url.ParseQuery(text) // what is right of it
		for _, options := range []runtime.Object{
			&corev1.PodLogOptions{}, &corev1.PodExecOptions{}, &corev1.PodAttachOptions{}, &corev1.PodPortForwardOptions{}, &corev1.NodeProxyOptions{},
		} {
			if err := decodeQuery(query, options); err != nil && strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of more than a line: %q", err)
			}
			if options.GetObjectKind().GroupVersionKind() != (schema.GroupVersionKind{}) {
				t.Errorf("a query has changed the kind to %v", options.GetObjectKind().GroupVersionKind())
			}
		}
	})
}
