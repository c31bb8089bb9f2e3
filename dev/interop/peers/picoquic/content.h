/* What peers ask of each other, as dev/interop/src/service.rs says it: one line, then bytes. */
#ifndef CONTENT_H
#define CONTENT_H

#include <stddef.h>
#include <stdint.h>

/* Writes the content's bytes from `offset` on. */
void content_fill(uint8_t *into, size_t length, uint64_t offset);
/* Whether these bytes are the content's from `offset` on. */
int content_matches(const uint8_t *bytes, size_t length, uint64_t offset);
/* "LENGTH SHA256\n" of the content's first `length` bytes. */
void content_receipt(char *into, size_t size, uint64_t length);

#endif
