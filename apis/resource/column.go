package resource

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objectMeta has the API's descriptions of the fields of metadata.
var objectMeta = metav1.ObjectMeta{}.SwaggerDoc()

// Name is the first column of every table: the object's name.
func Name[T Object]() Column[T] {
	return Column[T]{Name: "Name", Format: "name", Description: objectMeta["name"], Value: func(obj T) any { return obj.GetName() }}
}

// Age is the column of the time since the object was created.
func Age[T Object]() Column[T] {
	return Column[T]{Name: "Age", Description: objectMeta["creationTimestamp"], Value: func(obj T) any { return obj.GetCreationTimestamp() }}
}

// Until returns the column for releases up to this minor release of Kubernetes 1.
func Until[T Object](minor int, column Column[T]) Column[T] {
	column.Until = minor
	return column
}

// Since returns the column for releases from this minor release of Kubernetes 1 on.
func Since[T Object](minor int, column Column[T]) Column[T] {
	column.Since = minor
	return column
}

// Wide returns the columns with priority 1: they are shown by kubectl -o wide.
func Wide[T Object](columns ...Column[T]) []Column[T] {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}
