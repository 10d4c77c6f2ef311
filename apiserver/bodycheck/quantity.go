package bodycheck

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/internal/exponent"
)

// Codecs returns the serializers with decoders that refuse quantities with large exponents
// (package exponent): in bodies of objects, and in objects with a JSON patch or a merge patch,
// whose values may come from anywhere in the object. Other patches are not decoded in one
// piece; "apply fields" and "strategic values" check their bodies.
func Codecs(codecs runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	guarded := guardedCodecs{NegotiatedSerializer: codecs}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeYAML {
			guarded.yaml = append(guarded.yaml, info.Serializer, info.StrictSerializer)
		}
	}
	return guarded
}

type guardedCodecs struct {
	runtime.NegotiatedSerializer
	yaml []runtime.Decoder
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c guardedCodecs) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return c.NegotiatedSerializer.DecoderToVersion(guardedDecoder{decoder, slices.Contains(c.yaml, decoder)}, gv)
}

type guardedDecoder struct {
	runtime.Decoder
	yaml bool
}

// Decode implements runtime.Decoder.
func (d guardedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	plain := data
	if d.yaml {
		// A text in YAML may be written in many ways: with escapes, as base64, in UTF-16.
		converted, err := yaml.YAMLToJSON(data)
		if err != nil {
			return d.Decoder.Decode(data, defaults, into)
		}
		plain = converted
	}
	var obj runtime.Object
	var gvk *schema.GroupVersionKind
	err := exponent.Decode(plain, func(plain []byte, masked bool) error {
		if !masked {
			var err error
			obj, gvk, err = d.Decoder.Decode(data, defaults, into)
			return err
		}
		var unused runtime.Object
		if into != nil {
			unused = into.DeepCopyObject()
		}
		_, kind, err := d.Decoder.Decode(plain, defaults, unused)
		if gvk = kind; runtime.IsStrictDecodingError(err) {
			return nil
		}
		return err
	})
	return obj, gvk, err
}
