package groupdomain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// message is a node for the fields of a message by their numbers.
type message struct {
	translate func(text, kind string) string
	fields    map[protowire.Number]*message
}

// messageOf returns the message of a Go type whose JSON a node describes: the types of
// the API have both names of a field in their tags.
func messageOf(t reflect.Type, n *node) *message {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice && n != nil {
			n = n.elements
		}
		t = t.Elem()
	}
	if n == nil {
		return nil
	}
	m := &message{translate: n.translate, fields: map[protowire.Number]*message{}}
	if t.Kind() != reflect.Struct {
		return m
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		member := n.members[name]
		if name == "" {
			member = n // inline in JSON, a message of its own in protobuf
		}
		tag := strings.Split(field.Tag.Get("protobuf"), ",")
		if member == nil || len(tag) < 2 {
			continue
		}
		number, err := strconv.Atoi(tag[1])
		if err != nil {
			continue
		}
		m.fields[protowire.Number(number)] = messageOf(field.Type, member)
	}
	return m
}

// rewrite appends a message with its translation to out.
func (m *message) rewrite(out, in []byte) ([]byte, error) {
	for len(in) > 0 {
		number, wire, n := protowire.ConsumeField(in)
		if n < 0 {
			return nil, fmt.Errorf("read a field: %w", protowire.ParseError(n))
		}
		field := in[:n]
		in = in[n:]
		child := m.fields[number]
		if child == nil || wire != protowire.BytesType {
			out = append(out, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		content, _ := protowire.ConsumeBytes(field[tag:])
		changed := []byte(nil)
		if child.translate != nil {
			changed = []byte(child.translate(string(content), ""))
		} else {
			var err error
			if changed, err = child.rewrite(nil, content); err != nil {
				return nil, err
			}
		}
		out = protowire.AppendTag(out, number, protowire.BytesType)
		out = protowire.AppendBytes(out, changed)
	}
	return out, nil
}

// magic begins an object in protobuf (document 1, section 2). The message after it is
// runtime.Unknown: the type's metadata, and the object.
var magic = []byte("k8s\x00")

// The numbers of the fields of runtime.Unknown and of runtime.TypeMeta.
const (
	typeMetaField, rawField    = 1, 2
	apiVersionField, kindField = 1, 2
)

// protobuf translates objects in protobuf.
type protobuf struct {
	scheme *runtime.Scheme // of the stored types
	root   *node
	// stored returns the stored apiVersion of one that is read. It is needed to find
	// the type.
	stored func(apiVersion string) string
	// messages are those of the types that were read: the events of a watch have few.
	messages map[reflect.Type]*message
}

// object returns the translation of an object with its envelope.
func (p *protobuf) object(body []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(body, magic)
	if !ok {
		return nil, fmt.Errorf("a body in protobuf does not begin with %q", magic)
	}
	var meta runtime.TypeMeta
	var typeMeta []byte
	if err := eachField(rest, func(number protowire.Number, content []byte) error {
		if number == typeMetaField {
			typeMeta = content
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := eachField(typeMeta, func(number protowire.Number, content []byte) error {
		switch number {
		case apiVersionField:
			meta.APIVersion = string(content)
		case kindField:
			meta.Kind = string(content)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	envelope := &message{fields: map[protowire.Number]*message{
		typeMetaField: {fields: map[protowire.Number]*message{
			apiVersionField: {translate: func(text, _ string) string { return p.root.members["apiVersion"].translate(text, meta.Kind) }},
		}},
		rawField: p.messageOf(meta),
	}}
	return envelope.rewrite(slices.Clone(magic), rest)
}

// messageOf returns the message of a type. Of a type that the scheme does not have, the
// metadata is known.
func (p *protobuf) messageOf(meta runtime.TypeMeta) *message {
	t := reflect.TypeFor[metav1.PartialObjectMetadata]()
	if obj, err := p.scheme.New(schema.FromAPIVersionAndKind(p.stored(meta.APIVersion), meta.Kind)); err == nil {
		t = reflect.TypeOf(obj)
	} else if strings.HasSuffix(meta.Kind, "List") {
		t = reflect.TypeFor[metav1.PartialObjectMetadataList]()
	}
	if m, ok := p.messages[t]; ok {
		return m
	}
	if p.messages == nil {
		p.messages = map[reflect.Type]*message{}
	}
	m := messageOf(t, p.root)
	p.messages[t] = m
	return m
}

// event returns the translation of the event of a watch, which has no envelope. Its
// object has one.
func (p *protobuf) event(body []byte) ([]byte, error) {
	const objectField, contentField = 2, 1 // of WatchEvent and of runtime.RawExtension
	var failed error
	event := &message{fields: map[protowire.Number]*message{
		objectField: {fields: map[protowire.Number]*message{
			contentField: {translate: func(text, _ string) string {
				changed, err := p.object([]byte(text))
				if err != nil {
					failed = err
				}
				return string(changed)
			}},
		}},
	}}
	changed, err := event.rewrite(nil, body)
	if err == nil {
		err = failed
	}
	return changed, err
}

// eachField calls f for the fields of a message that have a length.
func eachField(body []byte, f func(number protowire.Number, content []byte) error) error {
	for len(body) > 0 {
		number, wire, n := protowire.ConsumeTag(body)
		if n < 0 {
			return protowire.ParseError(n)
		}
		body = body[n:]
		size := protowire.ConsumeFieldValue(number, wire, body)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if wire == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(body)
			if err := f(number, content); err != nil {
				return err
			}
		}
		body = body[size:]
	}
	return nil
}

// events writes the frames of a watch, each after its length in four bytes.
type events struct {
	to        io.Writer
	translate func(event []byte) ([]byte, error)
	held      []byte
}

const lengthSize = 4

// Write implements io.Writer.
func (e *events) Write(p []byte) (int, error) {
	e.held = append(e.held, p...)
	for len(e.held) >= lengthSize {
		end := lengthSize + int(binary.BigEndian.Uint32(e.held))
		if len(e.held) < end {
			break
		}
		changed, err := e.translate(e.held[lengthSize:end])
		if err != nil {
			return 0, err
		}
		frame := binary.BigEndian.AppendUint32(nil, uint32(len(changed)))
		if _, err := e.to.Write(append(frame, changed...)); err != nil {
			return 0, err
		}
		e.held = e.held[end:]
	}
	return len(p), nil
}

// Flush implements rewrite.Body.
func (e *events) Flush() error { return nil }

// Close implements rewrite.Body.
func (e *events) Close() error { return nil }
