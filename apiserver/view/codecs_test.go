package view

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"svc.dev/svc/apiserver/jsonencoding"
)

func TestFastJSONSelectsTheCodecs(t *testing.T) {
	if codecs, ok := (View{Scheme: runtime.NewScheme(), FastJSON: true}).codecs().(jsonencoding.Codecs); !ok {
		t.Errorf("with FastJSON: %T", codecs)
	}
	if codecs, ok := (View{Scheme: runtime.NewScheme()}).codecs().(serializer.CodecFactory); !ok {
		t.Errorf("without: %T", codecs)
	}
}
