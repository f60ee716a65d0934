declare module "swagger-ui-dist/swagger-ui-es-bundle.js" {
  export default function SwaggerUI(options: { readonly [name: string]: unknown }): unknown;
}
