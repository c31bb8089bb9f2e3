/* The content both sides of a transfer know: nothing has to be read from files. */
#include "content.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* A prime, so that no packet size divides it. */
#define PERIOD 65521
#define CHUNK 4096

static uint8_t byte_at(uint64_t offset)
{
    uint64_t at = offset % PERIOD;
    return (uint8_t)(at ^ (at >> 8));
}

void content_fill(uint8_t *into, size_t length, uint64_t offset)
{
    for (size_t i = 0; i < length; i++) {
        into[i] = byte_at(offset + i);
    }
}

int content_matches(const uint8_t *bytes, size_t length, uint64_t offset)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(offset + i)) {
            return 0;
        }
    }
    return 1;
}

void content_receipt(char *into, size_t size, uint64_t length)
{
    uint8_t chunk[CHUNK], digest[EVP_MAX_MD_SIZE];
    unsigned digest_length = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    EVP_DigestInit_ex(context, EVP_sha256(), NULL);
    for (uint64_t at = 0; at < length;) {
        size_t part = length - at < CHUNK ? (size_t)(length - at) : CHUNK;
        content_fill(chunk, part, at);
        EVP_DigestUpdate(context, chunk, part);
        at += part;
    }
    EVP_DigestFinal_ex(context, digest, &digest_length);
    EVP_MD_CTX_free(context);
    int used = snprintf(into, size, "%llu ", (unsigned long long)length);
    for (unsigned i = 0; i < digest_length && (size_t)used + 3 < size; i++) {
        used += snprintf(into + used, size - (size_t)used, "%02x", digest[i]);
    }
    snprintf(into + used, size - (size_t)used, "\n");
}
